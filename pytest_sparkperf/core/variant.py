"""Variants: a target with a test's variant keywords applied; the unit that is started once per run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.frozen import EMPTY, FrozenMap
from pytest_sparkperf.core.kinds import environment_text
from pytest_sparkperf.core.targets import (
    AVAILABLE_LAUNCHES,
    STARTED_LAUNCHES,
    Hardware,
    Launch,
    Target,
    Traffic,
)
from pytest_sparkperf.core.vllm_options import (
    DRAFT_TOKENS,
    SPECULATIVE,
    arguments,
    is_speculative,
    named_options,
    speculative_config,
    speculative_mapping,
)

_SECRET_OPTIONS = ("api-key", "hf-token")
# Options of a server that are facts of the launch, not words of `vllm serve` that we pass on.
_LAUNCHER_OPTIONS = ("host", "port")


@dataclass(frozen=True, slots=True)
class Variant:
    """One server as it will run; equal variants are one server.

    ``k`` None (attach only) stands for whatever the server at ``url`` has. ``args`` holds vLLM options by
    name, without host, port and the speculative config; ``speculative`` is the whole speculative config,
    empty for k = 0; ``resident`` holds options to add where two variants must be up at once. ``port`` is set
    where the user fixed one.
    """

    target: str
    launch: Launch
    model: str | None = None
    served_name: str | None = None
    k: int | None = None
    args: FrozenMap = EMPTY
    speculative: FrozenMap = EMPTY
    env: FrozenMap = field(default=EMPTY, repr=False)
    executable: str | None = None
    port: int | None = None
    url: str | None = None
    api_key_env: str | None = None
    traffic: Traffic = "exclusive"
    hardware: Hardware | None = None
    resident: FrozenMap = EMPTY
    ready_timeout_s: float = 900
    label: str = field(default="", compare=False)

    def describe(self) -> str:
        """Return a short text for messages: the target, k and what the test changed (``qwen36 k=3``)."""
        return self.label or self.target

    def url_for_k(self) -> str:
        """Return the root of the attached server with this k; raises ConfigError for other launch kinds."""
        if self.url is None:
            raise ConfigError(f"target {self.target!r} has no URL; only a target with launch: attach has one")
        return self.url


def make_variant(
    target: Target,
    *,
    k: int | None = None,
    args: Mapping[str, Any] | None = None,
    env: Mapping[str, Any] | None = None,
    model: str | None = None,
    image: str | None = None,
    executable: str | None = None,
) -> Variant:
    """Apply a test's variant keywords to a target.

    ``args`` and ``env`` are merged into the target's key by key; None removes a key. Raises ConfigError when
    the target's launch kind is not available, cannot be changed that way, or lacks what the variant needs.
    """
    _refuse_unavailable(target, image)
    if target.launch == "attach":
        return _attached(target, k, model, {"args": args, "env": env, "executable": executable})
    name = model or target.model
    _refuse_unstartable(target, name, executable)
    changed = named_options(args or {})
    options = {name: value for name, value in {**target.args, **changed}.items() if value is not None}
    speculative, draft_tokens = _speculation(target, options, changed, k)
    served = options.get("served-model-name")
    return Variant(
        target=target.name,
        launch=target.launch,
        model=name,
        served_name=_first(served) if served else name,
        k=draft_tokens,
        args=FrozenMap({key: options[key] for key in options if not _taken_apart(key)}),
        speculative=speculative,
        env=_merged_environment(target.env, env or {}),
        executable=executable or target.executable,
        port=options.get("port"),
        resident=target.resident,
        ready_timeout_s=target.ready_timeout_s,
        label=_label(target.name, draft_tokens, model, executable, changed, env or {}),
    )


def serve_arguments(variant: Variant, *, resident: bool = False) -> tuple[str, ...]:
    """Return what follows ``vllm serve``: the model, then the options; host and port are the launcher's.

    With ``resident`` the target's options for two servers at once are applied over its own.
    """
    options: dict[str, Any] = dict(variant.args)
    if resident:
        options.update({name: value for name, value in variant.resident.items() if not _taken_apart(name)})
    if variant.speculative:
        options[SPECULATIVE] = variant.speculative
    return (*((variant.model,) if variant.model else ()), *arguments(options))


def _refuse_unavailable(target: Target, image: str | None) -> None:
    if target.launch not in AVAILABLE_LAUNCHES:
        raise ConfigError(
            f"target {target.name!r}: launch: {target.launch} is not yet available "
            f"(it comes with the feature 'Servers'); available are {', '.join(AVAILABLE_LAUNCHES)}"
        )
    if image is not None:
        raise ConfigError("image is not yet available (it comes with the feature 'Servers')")


def _refuse_unstartable(target: Target, model: str | None, executable: str | None) -> None:
    if executable is not None and target.launch != "vllm":
        raise ConfigError(
            f"target {target.name!r}: executable cannot be set with launch: {target.launch}; "
            f"it names the program of launch: vllm"
        )
    if model is None and target.launch == "vllm":
        raise ConfigError(
            f"target {target.name!r}: launch: vllm needs a model; "
            f"give it by model: in sparkperf.yaml or by model= in the test"
        )


def _attached(target: Target, k: int | None, model: str | None, changes: Mapping[str, object]) -> Variant:
    for keyword, value in changes.items():
        if value:
            raise ConfigError(
                f"target {target.name!r}: {keyword} cannot change a server that already runs "
                f"(launch: attach); leave it out, "
                f"or use a target with launch: {' or '.join(STARTED_LAUNCHES)}"
            )
    wanted = target.k if k is None else k
    found_k, url = _url(target, wanted)
    name = model or target.model
    return Variant(
        target=target.name,
        launch="attach",
        model=name,
        served_name=name,
        k=found_k,
        url=url,
        api_key_env=target.api_key_env,
        traffic=target.traffic,
        hardware=target.hardware,
        ready_timeout_s=target.ready_timeout_s,
        label=_label(target.name, found_k, model, None, {}, {}),
    )


def _url(target: Target, k: int | None) -> tuple[int | None, str]:
    urls = dict(target.urls)
    if k is None and len(urls) == 1:
        return next(iter(urls.items()))
    if k in urls:
        return k, urls[k]
    if None in urls:
        return k, urls[None]
    there = ", ".join(f"k={one} ({url})" for one, url in target.urls)
    if k is None:
        raise ConfigError(
            f"target {target.name!r} has a URL per k: {there}; "
            f"say which by k= in the test or k: in the target"
        )
    raise ConfigError(f"target {target.name!r} has no URL for k={k}; it has {there}")


def _speculation(
    target: Target, options: Mapping[str, Any], changed: Mapping[str, Any], k: int | None
) -> tuple[FrozenMap, int]:
    """Return the speculative config and its k; the closest to the test that names a number wins."""
    given = speculative_mapping(target.speculative)
    config = given | speculative_config(options)
    for number in (k, speculative_config(changed).get(DRAFT_TOKENS), target.k, config.get(DRAFT_TOKENS)):
        if number is not None:
            break
    else:
        if config:
            raise ConfigError(
                f"target {target.name!r} has a speculative config and no number of draft tokens; "
                f"give it by k: in the target or by k= in the test (0 for none)"
            )
        number = 0
    if number == 0:
        return EMPTY, 0
    if "method" not in config and "model" not in config:
        config = {"method": "mtp"} | config
    return FrozenMap(_with_number(config, number)), number


def _with_number(config: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Put the number behind the method, where people look for it."""
    method = {"method": config["method"]} if "method" in config else {}
    rest = {key: value for key, value in config.items() if key not in ("method", DRAFT_TOKENS)}
    return method | {DRAFT_TOKENS: number} | rest


def _first(served: Any) -> str:
    return str(served[0] if isinstance(served, tuple | list) else served)


def _taken_apart(option: str) -> bool:
    return option in _LAUNCHER_OPTIONS or is_speculative(option)


def _merged_environment(base: Mapping[str, str], changes: Mapping[str, Any]) -> FrozenMap:
    merged: dict[str, Any] = {**base, **changes}
    return FrozenMap({name: environment_text(value) for name, value in merged.items() if value is not None})


def _label(
    target: str,
    k: int | None,
    model: str | None,
    executable: str | None,
    changed: Mapping[str, Any],
    env: Mapping[str, Any],
) -> str:
    """Say what sets a variant apart; values that may be secret are never shown."""
    words = [target] if k is None else [target, f"k={k}"]
    words += [f"{key}={value}" for key, value in (("model", model), ("executable", executable)) if value]
    for name, value in changed.items():
        hidden = name in _SECRET_OPTIONS
        words.append(
            f"without {name}" if value is None else " ".join(arguments({name: "***" if hidden else value}))
        )
    return " ".join([*words, *(f"env {name}" for name in env)])
