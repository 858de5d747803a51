"""vLLM's command-line options as a mapping: one name per option, valid values, and the arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.frozen import compact_json
from pytest_sparkperf.core.kinds import COUNT_OR_ZERO, is_plain, is_whole, shortened

SPECULATIVE = "speculative-config"
DRAFT_TOKENS = "num_speculative_tokens"
LOOPBACK = ("127.0.0.1", "localhost", "::1")

# Short spellings that `vllm serve --help` (0.32) gives for options people set in targets.
_SHORT = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "dcp": "decode-context-parallel-size",
    "ep": "enable-expert-parallel",
    "q": "quantization",
    "sc": SPECULATIVE,
    "cc": "compilation-config",
    "ac": "attention-config",
}
# Options that take several values after one flag (argparse nargs="+" in vLLM 0.32); a repeated flag would
# replace the values before it. Every other list repeats its flag.
_SEVERAL_VALUES = frozenset(
    {
        "allowed-media-domains",
        "api-key",
        "collect-detailed-traces",
        "cpu-offload-params",
        "cudagraph-capture-sizes",
        "ignore-patterns",
        "kv-cache-dtype-skip-layers",
        "logits-processors",
        "lora-modules",
        "lora-target-modules",
        "numa-bind-cpus",
        "numa-bind-nodes",
        "offload-params",
        "served-model-name",
        "sleep-preserve-parameter-names",
    }
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


def option_name(written: str) -> str:
    """Return the one name of an option: without leading dashes, dashes for underscores, long for short.

    In ``--compilation-config.cudagraph_mode`` only the part before the dot is the option's name.
    """
    head, dot, tail = written.lstrip("-").partition(".")
    head = head.replace("_", "-")
    return _SHORT.get(head, head) + dot + tail


def option_faults(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every option that cannot be used: its key as written, and what is wrong."""
    seen: dict[str, str] = {}
    for written, value in options.items():
        if not isinstance(written, str) or not _NAME.fullmatch(written.lstrip("-")):
            yield (
                written,
                "is not the name of a vLLM option; write it as on the command line, such as max-num-seqs",
            )
            continue
        name = _positive(option_name(written), value)[0]
        if name in seen:
            yield written, f"is the same option as {seen[name]}; keep one of them"
        seen.setdefault(name, written)
        text = _value_fault(name, value)
        if text is not None:
            yield written, text


def named_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options under their one name; ``no-x: true`` becomes ``x: false``."""
    return dict(_positive(option_name(written), value) for written, value in options.items())


def arguments(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return command-line arguments.

    True is ``--x``, false ``--no-x``, None nothing, a mapping JSON; a list repeats its flag. Lists of
    options that take several values follow one flag (``--served-model-name a b``).
    """
    return tuple(word for name, value in options.items() for word in _words(name, value))


def speculative_config(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the speculative config given among options, as one mapping: whole, as JSON, or by dotted keys.

    Raises ConfigError when a text is not a JSON mapping.
    """
    config = speculative_mapping(options.get(SPECULATIVE) or {})
    for name, value in options.items():
        if name.startswith(f"{SPECULATIVE}.") and value is not None:
            config[name.removeprefix(f"{SPECULATIVE}.")] = value
    return config


def speculative_mapping(value: Any) -> dict[str, Any]:
    """Return a speculative config as a mapping with underscores in its keys; raises ConfigError."""
    if isinstance(value, str):
        value = _parsed(value)
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{shortened(repr(value))} is not a speculative config; write a mapping such as "
            f'{{"method": "mtp"}}, and the number of draft tokens as k'
        )
    config = {key.replace("-", "_"): item for key, item in value.items()}
    number = config.get(DRAFT_TOKENS)
    if number is not None and not COUNT_OR_ZERO.accepts(number):
        raise ConfigError(
            f"{DRAFT_TOKENS}: {shortened(repr(number))} is not {COUNT_OR_ZERO.says}; "
            f"give the number of draft tokens as k"
        )
    return config


def is_speculative(name: str) -> bool:
    """Tell whether an option is the speculative config or a part of it."""
    return name == SPECULATIVE or name.startswith(f"{SPECULATIVE}.")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _positive(name: str, value: Any) -> tuple[str, Any]:
    if name.startswith("no-") and (isinstance(value, bool) or value is None):
        return name.removeprefix("no-"), None if value is None else not value
    return name, value


def _value_fault(name: str, value: Any) -> str | None:
    if not is_plain(value):
        return (
            f"{shortened(repr(value))} cannot be an option's value; "
            f"give a text, a number, true, false, null, a list or a mapping"
        )
    if value is None:
        return None
    if name == "model":
        return "is not given among args; name the model by the key model"
    if name == "host" and value not in LOOPBACK:
        return f"{value!r} would let other machines in; leave host out, servers listen on 127.0.0.1 only"
    if name == "port" and not (is_whole(value) and 0 < value < 65536):
        return f"{value!r} is not a port; give a whole number from 1 to 65535, or leave it out for a free one"
    if name == SPECULATIVE:
        try:
            speculative_mapping(value)
        except ConfigError as error:
            return str(error)
    return None


def _words(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        yield f"--{name}" if value else f"--no-{name}"
    elif isinstance(value, list | tuple):
        if name in _SEVERAL_VALUES and value:
            yield from (f"--{name}", *map(_text, value))
        else:
            for item in value:
                yield from _pair(name, _text(item))
    elif value is not None:
        yield from _pair(name, _text(value))


def _pair(name: str, text: str) -> tuple[str, ...]:
    # argparse takes a word that starts with a dash for an option, unless it is glued to its own.
    return (f"--{name}={text}",) if text.startswith("-") else (f"--{name}", text)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else compact_json(value)
