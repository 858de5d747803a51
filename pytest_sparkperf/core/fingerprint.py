"""Facts of a run beside its hardware key: recorded and compared, never hashed; differences in words.

The order of FACTS is the order of suspicion: what changes speed most often comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pytest_sparkperf.core.frozen import FrozenMap, thaw
from pytest_sparkperf.core.gpu import GpuState
from pytest_sparkperf.core.kinds import is_number
from pytest_sparkperf.core.vllm_options import named_options

# A change up to this says nothing: fans and boost clocks move that much by themselves.
_SAME_DEGREES = 2.0
_SAME_CLOCK = 0.03
_ARGUMENTS = "arguments"
_TEMPERATURE, _CLOCK = "temperature_c", "sm_clock_mhz"
FACTS: Mapping[str, str] = MappingProxyType(
    {
        "simulated": "simulated",
        "vllm": "vLLM",
        "image": "image digest",
        "model": "model",
        "revision": "model revision",
        "quantization": "quantization",
        "k": "k",
        "speculator": "speculator",
        "draft_model": "draft model",
        "moe_backend": "moe-backend",
        "draft_moe_backend": "draft moe-backend",
        "attention_backend": "attention backend",
        _ARGUMENTS: "",  # named one by one
        "max_model_len": "max-model-len",
        "max_num_seqs": "max-num-seqs",
        "prefix_caching": "prefix caching",
        "kv_cache_tokens": "KV cache tokens",
        "torch": "torch",
        "power_mode": "power mode",
        "power_limit_w": "power limit",
        "throttled": "throttling",
        "cuda": "CUDA",
        "driver": "driver",
        _CLOCK: "SM clock",
        _TEMPERATURE: "GPU temperature",
        "cpu_governor": "CPU governor",
        "kernel": "kernel",
        "os": "OS",
        "container": "in a container",
        "workload": "workload digest",
    }
)
_UNITS = {"power_limit_w": "W", _CLOCK: "MHz"}
# Other names under which a server's own pages and its log state these.
_RENAMED = {"version": "vllm", "vllm_version": "vllm", "speculative_method": "speculator"}
# Never kept: they name a person, a machine or a secret.
_PRIVATE_NAMES = re.compile(
    r"serial|uuid|host|user|api.?key|token\b|_key\b|secret|password|passwd|credential|bearer|\burl\b",
    re.IGNORECASE,
)
_SECRETS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9-]{8,}|nvapi-[\w-]{8,}|gh[pousr]_[A-Za-z0-9]{8,})"
    r"|(?<=[Bb]earer )\S+"
)
_HOME = re.compile(r"(?<![\w.])/(?:home|Users)/[^/\s]+(?=/|$)|(?<![\w.])/root(?=/|$)")
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
# Server arguments that say where, not how; or that hold what is private.
_NO_ARGUMENTS = frozenset(
    {"host", "port", "uds", "api-key", "hf-token", "served-model-name", "ssl-keyfile", "ssl-certfile"}
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What one look at the machine and its GPUs showed; None where it could not be read.

    ``power_mode`` is the name a Jetson gives its mode. ``container`` says that we run in one, so that ``os``
    is the container's.
    """

    os: str | None = None
    kernel: str | None = None
    cpu_governor: str | None = None
    power_mode: str | None = None
    container: bool = False
    driver: str | None = None
    cuda: str | None = None
    gpus: tuple[GpuState, ...] = ()


def facts_of(
    server: Mapping[str, Any],
    arguments: Mapping[str, Any],
    surroundings: Surroundings,
    *,
    hooked: Mapping[str, Any] | None = None,
) -> FrozenMap:
    """Collect the facts of a run, most suspect first; what is unknown or private is left out.

    ``server``: facts as the server's pages and its log state them;
    ``arguments``: vLLM options it was started with; ``hooked``: what hooks of the user add.
    """
    known = {_RENAMED.get(name, name): value for name, value in server.items()}
    # What this machine shows of itself wins over what the server's page says of its machine.
    seen = {name: value for name, value in _seen(surroundings).items() if value not in (None, [])}
    found = {name: known.get(name) for name in FACTS} | seen
    found[_ARGUMENTS] = _public_arguments(arguments)
    found |= {name: value for name, value in (hooked or {}).items() if name not in FACTS}
    kept = {
        name: public(value)
        for name, value in found.items()
        if value not in (None, {}, [], (), "") and not _PRIVATE_NAMES.search(name)
    }
    return FrozenMap({name: kept[name] for name in sorted(kept, key=_suspicion)})


def public(value: Any) -> Any:
    """Return a plain value without home folders, credentials in URLs and tokens."""
    if isinstance(value, Mapping):
        return {key: public(item) for key, item in value.items() if not _PRIVATE_NAMES.search(str(key))}
    if isinstance(value, list | tuple):
        return [public(item) for item in value]
    if isinstance(value, str):
        return _SECRETS.sub("***", _CREDENTIALS.sub("***@", _HOME.sub("~", value)))
    return value


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """Say which facts differ, most suspect first: ``vLLM 0.24.0 -> 0.26.1``, ``GPU 12 C warmer``.

    A fact that one side does not know is no difference, since older records know fewer.
    """
    names = sorted({*then, *now}, key=_suspicion)
    return tuple(text for name in names for text in _difference(name, then.get(name), now.get(name)))


def difference_text(found: Sequence[str]) -> str:
    """Join differences into what a verdict says of its baseline."""
    if not found:
        return "no recorded fact differs from the baseline"
    return f"differs from the baseline, most likely cause first: {'; '.join(found)}"


def _seen(surroundings: Surroundings) -> dict[str, Any]:
    gpus = surroundings.gpus
    return {
        "driver": surroundings.driver,
        "cuda": surroundings.cuda,
        "os": surroundings.os,
        "kernel": surroundings.kernel,
        "cpu_governor": surroundings.cpu_governor,
        "power_mode": surroundings.power_mode,
        "container": surroundings.container or None,
        "power_limit_w": _most(gpu.power_limit_w for gpu in gpus),
        _TEMPERATURE: _most(gpu.temperature_c for gpu in gpus),
        _CLOCK: _most(gpu.sm_clock_mhz for gpu in gpus),
        "throttled": sorted({reason for gpu in gpus for reason in gpu.throttled}),
    }


def _most(values: Iterator[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _public_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    named = named_options(arguments)
    return {name: thaw(named[name]) for name in sorted(named) if name not in _NO_ARGUMENTS}


def _suspicion(name: str) -> tuple[int, str]:
    order = list(FACTS)
    return (order.index(name) if name in FACTS else len(order), name)


def _difference(name: str, then: Any, now: Any) -> Iterator[str]:
    if name == _ARGUMENTS:
        # An option that is not named has vLLM's default, which is a value too.
        both = isinstance(then, Mapping) and isinstance(now, Mapping)
        for option in sorted({*then, *now}) if both else ():
            yield from _changed(option, then.get(option, "default"), now.get(option, "default"))
    elif then is None or now is None:
        return
    elif name in (_TEMPERATURE, _CLOCK) and not (is_number(then) and is_number(now)):
        return  # a file that was edited by hand
    elif name == _TEMPERATURE:
        if abs(now - then) > _SAME_DEGREES:
            yield f"GPU {abs(now - then):.0f} C {'warmer' if now > then else 'colder'}"
    elif name != _CLOCK or abs(now - then) > _SAME_CLOCK * then:
        yield from _changed(FACTS.get(name, name), then, now, _UNITS.get(name, ""))


def _changed(label: str, then: Any, now: Any, unit: str = "") -> Iterator[str]:
    if thaw(then) != thaw(now):
        yield f"{label} {_shown(then)} -> {_shown(now)} {unit}".rstrip()


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return str(value)
