"""Fields of a request's JSON body, read with the refusals vLLM's own validation sends."""

from __future__ import annotations

import json
from collections.abc import Mapping

Body = Mapping[str, object]


class RequestError(Exception):
    """A refusal with its HTTP status and the fields of vLLM's error body."""

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.kind, self.param = message, status, kind, param

    def body(self) -> dict[str, object]:
        """Return the JSON body of the answer."""
        return {
            "error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        }


def decode_body(raw: bytes) -> Body:
    """Return the JSON object of a request's body."""
    try:
        body = json.loads(raw)
    except json.JSONDecodeError as error:
        raise validation_error(
            f"'type': 'json_invalid', 'loc': 'body.{error.pos}', 'msg': 'JSON decode error', "
            f"'input': '<dict of 0 items>', 'ctx': {{'error': {error.msg!r}}}",
            f"body.{error.pos}",
        ) from None
    except UnicodeDecodeError as error:
        raise RequestError(f"There was an error parsing the body: {error}", kind="Bad Request") from None
    if not isinstance(body, dict):
        raise type_error("", "a valid dictionary", body, kind="dict_type")
    return body


def text_field(body: Body, name: str, default: str) -> str:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise type_error(name, "a valid string", value, kind="string_type")
    return value


def integer_field(body: Body, name: str, default: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise type_error(name, "a valid integer", value, kind="int_type")
    return value


def flag_field(body: Body, name: str) -> bool:
    value = body.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise type_error(name, "a valid boolean", value, kind="bool_type")
    return value


def missing(name: str, body: Body) -> RequestError:
    seen = f"<dict of {len(body)} items>"
    shown = f"'type': 'missing', 'loc': 'body.{name}', 'msg': 'Field required', 'input': '{seen}'"
    return validation_error(shown, f"body.{name}")


def type_error(name: str, wanted: str, value: object, *, kind: str) -> RequestError:
    loc = f"body.{name}".rstrip(".")
    shown = f"'type': '{kind}', 'loc': '{loc}', 'msg': 'Input should be {wanted}', 'input': {value!r:.80}"
    return validation_error(shown, loc)


def validation_error(shown: str, loc: str) -> RequestError:
    return RequestError(f"1 validation error:\n  {{{shown}}}", kind="Bad Request", param=loc)


def unsupported(name: str, value: object, way_out: str, *, show: bool = True) -> RequestError:
    seen = f"{name}={value!r}" if show else f"this form of {name}"
    return RequestError(f"The simulator does not support {seen:.120}. {way_out}", param=name)
