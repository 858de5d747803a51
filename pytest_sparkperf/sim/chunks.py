"""The JSON of answers: stream chunks and whole bodies with vLLM's keys, in vLLM's order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_sparkperf.sim.answer import Piece
from pytest_sparkperf.sim.logprobs import chat_logprobs, completion_logprobs
from pytest_sparkperf.sim.requests import Generation

DONE = b"data: [DONE]\n\n"
_Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Identity:
    """What every chunk of one answer says about where it comes from."""

    request_id: str  # hexadecimal, without its prefix
    created: int
    fingerprint: str
    model: str


@dataclass(frozen=True, slots=True)
class UsageStyle:
    """How usage is reported: left out, multiplied (a fault), with the cached tokens (an option of vLLM's)."""

    hidden: bool = False
    factor: int = 1
    prompt_details: bool = False


def sse(payload: object) -> bytes:
    """Return one server-sent event with a JSON payload."""
    return b"data: " + to_json(payload) + b"\n\n"


def to_json(payload: object) -> bytes:
    """Return compact JSON, as vLLM writes it."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()


class ChunkWriter:
    """Writes the answer to one request, as a stream of chunks or whole."""

    def __init__(self, generation: Generation, identity: Identity, usage: UsageStyle) -> None:
        self._generation = generation
        self._identity = identity
        self._usage = usage
        self._chat = generation.endpoint == "chat"

    def opening(self) -> list[bytes]:
        """Return what precedes the first token of a stream: the role chunk of a chat."""
        if not self._chat:
            return []
        choice = {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        chunk = self._envelope([choice]) | self._continuous_usage(0)
        return [sse(chunk | {"prompt_token_ids": self._prompt_ids(), "prompt_text": None})]

    def tokens(
        self, first: int, count: int, *, done: bool, text: bool = True, ids: bool = True
    ) -> bytes | None:
        """Return the chunk of ``count`` tokens from ``first`` on; None where the client would see nothing.

        Without ``text`` it says nothing, without ``ids`` it has no token ids even where they were asked for.
        """
        positions = range(first, first + count)
        pieces = [self._generation.answer.piece(position) for position in positions]
        finish = self._generation.finish_reason if done else None
        options = self._generation.options
        told = [piece.token_id for piece in pieces] if options.token_ids and ids else None
        logprobs = self._logprobs(positions)
        shown = pieces if text else []
        if self._chat:
            delta = self._delta(shown)
            if not delta and not done and told is None:
                return None
            choice: _Json = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
            choice |= {"stop_reason": None} if done else {}
            choice["token_ids"] = told
        else:
            choice = {"index": 0, "text": _join(shown), "logprobs": logprobs, "finish_reason": finish}
            prompt_ids = self._prompt_ids() if first == 0 else None
            choice |= {"stop_reason": None, "prompt_token_ids": prompt_ids, "token_ids": told}
        return sse(self._envelope([choice]) | self._continuous_usage(first + count))

    def closing(self, cached_tokens: int) -> list[bytes]:
        """Return what follows the last token: the usage chunk where one was asked for, and ``[DONE]``."""
        if not self._generation.options.include_usage or self._usage.hidden:
            return [DONE]
        usage = self._count(self._generation.output_tokens, cached_tokens)
        chunk = self._envelope([]) | {"usage": usage, "system_fingerprint": self._identity.fingerprint}
        return [sse(chunk), DONE]

    def whole(self, cached_tokens: int) -> bytes:
        """Return the body of an answer that is not streamed."""
        generation = self._generation
        positions = range(generation.output_tokens)
        pieces = [generation.answer.piece(position) for position in positions]
        logprobs = self._logprobs(positions)
        ids = [piece.token_id for piece in pieces] if generation.options.token_ids else None
        ending = {"finish_reason": generation.finish_reason, "stop_reason": None, "token_ids": ids}
        choice: _Json = {"index": 0}
        if self._chat:
            choice |= {
                "message": self._message(pieces),
                "logprobs": logprobs,
                **ending,
                "routed_experts": None,
            }
        else:
            choice |= {"text": _join(pieces), "logprobs": logprobs, **ending, "prompt_logprobs": None}
            choice |= {"prompt_token_ids": self._prompt_ids(), "routed_experts": None}
        usage = None if self._usage.hidden else self._count(generation.output_tokens, cached_tokens)
        body = self._envelope([choice], streamed=False)
        body |= {"service_tier": None, "system_fingerprint": self._identity.fingerprint, "usage": usage}
        if self._chat:
            body |= {"prompt_logprobs": None, "prompt_token_ids": self._prompt_ids(), "prompt_text": None}
        return to_json(body | {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": None})

    def _envelope(self, choices: list[_Json], *, streamed: bool = True) -> _Json:
        prefix = "chatcmpl" if self._chat else "cmpl"
        chat_kind = "chat.completion.chunk" if streamed else "chat.completion"
        return {
            "id": f"{prefix}-{self._identity.request_id}",
            "object": chat_kind if self._chat else "text_completion",
            "created": self._identity.created,
            "model": self._identity.model,
            "choices": choices,
        }

    def _delta(self, pieces: Sequence[Piece]) -> _Json:
        delta: _Json = {}
        for key in ("reasoning", "content"):
            text = _join(piece for piece in pieces if piece.channel == key)
            if text:
                delta[key] = text
        calls = [self._tool_delta(pieces, call) for call in _calls(pieces)]
        return delta | ({"tool_calls": calls} if calls else {})

    def _tool_delta(self, pieces: Sequence[Piece], call: int) -> _Json:
        name, arguments = _call_texts(pieces, call)
        head = {"id": self._tool_id(call), "type": "function"} if name else {}
        function = ({"name": name} if name else {}) | ({"arguments": arguments} if arguments else {})
        return {**head, "index": call, "function": function}

    def _message(self, pieces: Sequence[Piece]) -> _Json:
        message: _Json = {
            "role": "assistant",
            "content": _join(piece for piece in pieces if piece.channel == "content") or None,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
        }
        calls = [self._whole_call(pieces, call) for call in _calls(pieces)]
        if calls:
            message["tool_calls"] = calls
        message["reasoning"] = _join(piece for piece in pieces if piece.channel == "reasoning") or None
        return message

    def _whole_call(self, pieces: Sequence[Piece], call: int) -> _Json:
        name, arguments = _call_texts(pieces, call)
        function = {"name": name, "arguments": arguments}
        return {"id": self._tool_id(call), "type": "function", "function": function}

    def _tool_id(self, call: int) -> str:
        # vLLM gives a streamed call its id with the function's name, once.
        return f"chatcmpl-tool-{self._identity.request_id}" + (f"{call:x}" if call else "")

    def _logprobs(self, positions: range) -> _Json | None:
        answer, count = self._generation.answer, self._generation.options.logprobs
        if count is None:
            return None
        if self._chat:
            return chat_logprobs(answer, positions, count)
        offset = sum(len(answer.piece(before).text) for before in range(positions.start))
        return completion_logprobs(answer, positions, count, offset)

    def _continuous_usage(self, output_tokens: int) -> _Json:
        if not self._generation.options.continuous_usage or self._usage.hidden:
            return {}
        usage = self._count(output_tokens, None)
        return {"usage": usage}

    def _count(self, output_tokens: int, cached_tokens: int | None) -> _Json:
        prompt = len(self._generation.prompt_ids)
        output = output_tokens * self._usage.factor
        usage: _Json = {"prompt_tokens": prompt, "total_tokens": prompt + output, "completion_tokens": output}
        if cached_tokens is not None and self._usage.prompt_details:
            usage["prompt_tokens_details"] = {"cached_tokens": cached_tokens, "created_cache_tokens": 0}
        if self._chat:
            reasoning = min(output_tokens, self._generation.answer.reasoning_tokens)
            usage["completion_tokens_details"] = {"reasoning_tokens": reasoning}
        return usage

    def _prompt_ids(self) -> list[int] | None:
        return list(self._generation.prompt_ids) if self._generation.options.token_ids else None


def _join(pieces: Iterable[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def _calls(pieces: Iterable[Piece]) -> list[int]:
    """Return which tool calls these tokens say something of."""
    return sorted({piece.call for piece in pieces if piece.channel in ("tool_name", "tool_arguments")})


def _call_texts(pieces: Sequence[Piece], call: int) -> tuple[str, str]:
    """Return what these tokens say of the name and of the arguments of one tool call."""
    own = [piece for piece in pieces if piece.call == call]
    name = _join(piece for piece in own if piece.channel == "tool_name")
    return name, _join(piece for piece in own if piece.channel == "tool_arguments")
