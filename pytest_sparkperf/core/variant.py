"""Variants: a target with a test's variant keywords applied; the unit that is started once per run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.frozen import EMPTY, FrozenMap
from pytest_sparkperf.core.kinds import environment_text
from pytest_sparkperf.core.targets import (
    READY_TIMEOUT_S,
    SILENCE_TIMEOUT_S,
    STARTED_LAUNCHES,
    Commands,
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

SECRET_OPTIONS = ("api-key", "hf-token")
# Options of a server that are facts of the launch, not words of `vllm serve` that we pass on.
_LAUNCHER_OPTIONS = ("host", "port")
# Launch kinds whose server may speculate without being told to by us.
_OWN_K = ("recipe", "command")


@dataclass(frozen=True, slots=True)
class Variant:
    """One server as it will run; equal variants are one server.

    ``k`` None (not for vllm, docker and sim) stands for whatever the server has. ``args`` holds vLLM options
    by name, without host, port and the speculative config; ``speculative`` is the whole speculative config,
    empty for k = 0; ``resident`` holds options to add where two variants must be up at once. ``port`` is set
    where the user fixed one. ``speculative`` of a recipe is what the test changes in the recipe's own.
    """

    target: str
    launch: Launch
    model: str | None = None
    served_name: str | None = None
    k: int | None = None
    args: FrozenMap = field(default=EMPTY, repr=False)
    speculative: FrozenMap = EMPTY
    env: FrozenMap = field(default=EMPTY, repr=False)
    executable: str | None = None
    port: int | None = None
    url: str | None = None
    api_key_env: str | None = None
    traffic: Traffic = "exclusive"
    hardware: Hardware | None = None
    probe: tuple[str, ...] = ()
    resident: FrozenMap = EMPTY
    ready_timeout_s: float = READY_TIMEOUT_S
    image: str | None = None
    mounts: tuple[str, ...] = ()
    recipe: str | None = None
    overrides: FrozenMap = EMPTY
    commands: Commands | None = None
    memory_floor_gib: float | None = None
    silence_timeout_s: float = SILENCE_TIMEOUT_S
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
    if target.launch == "attach":
        changes = {"args": args, "env": env, "image": image, "executable": executable}
        return _attached(target, k, model, changes)
    _refuse_unstartable(target, model, image, executable)
    changed = named_options(args or {})
    if target.launch == "command":
        _refuse_unheard(target, k, {"args": changed, "model": model})
    named = {"model": model, "image": image, "executable": executable}
    return replace(_started(target, k, changed, env or {}, named), **_fixed(target))


def _started(
    target: Target,
    k: int | None,
    changed: Mapping[str, Any],
    env: Mapping[str, Any],
    named: Mapping[str, str | None],
) -> Variant:
    options = FrozenMap({**target.args, **changed})
    if target.launch != "recipe":  # there None removes what the recipe says
        options = FrozenMap({name: value for name, value in options.items() if value is not None})
    speculative, draft_tokens = _speculation(target, options, changed, k)
    name = named["model"] or target.model
    served = options.get("served-model-name")
    return Variant(
        target=target.name,
        launch=target.launch,
        model=name,
        served_name=_first(served) if served else name,
        k=draft_tokens,
        args=FrozenMap({key: options[key] for key in options if not _taken_apart(key)}),
        speculative=speculative,
        env=_merged_environment(target.env, env),
        executable=named["executable"] or target.executable,
        image=named["image"] or target.image,
        port=options.get("port"),
        url=_url(target, draft_tokens)[1] if target.urls else None,
        label=_label(target.name, draft_tokens, named, changed, env),
    )


def _fixed(target: Target) -> dict[str, Any]:
    """Return the fields that no test changes."""
    names = (
        *("api_key_env", "hardware", "probe", "resident", "mounts", "recipe", "overrides"),
        *("commands", "memory_floor_gib", "silence_timeout_s"),
    )
    ready_s = READY_TIMEOUT_S if target.ready_timeout_s is None else target.ready_timeout_s
    return {name: getattr(target, name) for name in names} | {"ready_timeout_s": ready_s}


def serve_options(variant: Variant) -> dict[str, Any]:
    """Return the options behind ``vllm serve``; host, port and those with secrets are the launcher's.

    A key or token on a command line shows in every list of processes; vLLM reads it from its environment too.
    """
    options = {name: value for name, value in variant.args.items() if name not in SECRET_OPTIONS}
    if variant.speculative:
        options[SPECULATIVE] = variant.speculative
    return options


def serve_arguments(variant: Variant) -> tuple[str, ...]:
    """Return what follows ``vllm serve``: the model, then the options."""
    return (*((variant.model,) if variant.model else ()), *arguments(serve_options(variant)))


def beside_another(variant: Variant) -> Variant:
    """Return the variant as it runs where two must be up at once: the target's ``resident`` over its own."""
    if not variant.resident:
        return variant
    options = {name: value for name, value in variant.resident.items() if not _taken_apart(name)}
    return replace(variant, args=FrozenMap({**variant.args, **options}), resident=EMPTY)


def _refuse_unstartable(target: Target, model: str | None, image: str | None, executable: str | None) -> None:
    if executable is not None and target.launch not in ("vllm", "recipe"):
        raise ConfigError(
            f"target {target.name!r}: executable cannot be set with launch: {target.launch}; "
            f"it names the program of launch: vllm or recipe"
        )
    if image is not None and target.launch not in ("docker", "recipe"):
        raise ConfigError(
            f"target {target.name!r}: image cannot be set with launch: {target.launch}; "
            f"it names the container of launch: docker or recipe"
        )
    if (model or target.model) is None and target.launch in ("vllm", "docker"):
        raise ConfigError(
            f"target {target.name!r}: launch: {target.launch} needs a model; "
            f"give it by model: in sparkperf.yaml or by model= in the test"
        )


def _refuse_unheard(target: Target, k: int | None, changes: Mapping[str, Any]) -> None:
    """Refuse what the start command would never learn: the server would not be the one asked for."""
    words = " ".join(target.commands.start) if target.commands else ""
    for name, value in changes.items():
        if value and f"{{{name}}}" not in words:
            raise ConfigError(
                f"target {target.name!r}: {name} cannot reach the server, since start: has no {{{name}}}; "
                f"put {{{name}}} into it where the options belong, or leave {name} out"
            )
    told = "{k}" in words or "{speculative_config}" in words or len(target.urls) > 1
    if k is not None and k != target.k and not told:
        raise ConfigError(
            f"target {target.name!r}: k={k} cannot reach the server, since start: has neither {{k}} nor "
            f"{{speculative_config}}; put one of them into it, or say by k: which k it starts"
        )


def _attached(target: Target, k: int | None, model: str | None, changes: Mapping[str, object]) -> Variant:
    for keyword, value in changes.items():
        if value:
            raise ConfigError(
                f"target {target.name!r}: {keyword} cannot change a server that already runs "
                f"(launch: attach); leave it out, "
                f"or use a target with launch: {', '.join(STARTED_LAUNCHES[:-1])} or {STARTED_LAUNCHES[-1]}"
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
        probe=target.probe,
        ready_timeout_s=target.ready_timeout_s or 0.0,
        silence_timeout_s=target.silence_timeout_s,
        label=_label(target.name, found_k, {"model": model}, {}, {}),
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
) -> tuple[FrozenMap, int | None]:
    """Return the speculative config and its k; the closest to the test that names a number wins.

    k is None where nobody names one and the launcher has its own way to speculate.
    """
    given = speculative_mapping(target.speculative)
    config = given | speculative_config(options)
    for number in (k, speculative_config(changed).get(DRAFT_TOKENS), target.k, config.get(DRAFT_TOKENS)):
        if number is not None:
            break
    else:
        if target.launch in _OWN_K:
            return FrozenMap(config), None
        if config:
            raise ConfigError(
                f"target {target.name!r} has a speculative config and no number of draft tokens; "
                f"give it by k: in the target or by k= in the test (0 for none)"
            )
        number = 0
    if number == 0:
        return EMPTY, 0
    if target.launch == "recipe":  # the method is the recipe's, unless somebody names one
        return FrozenMap(_with_number(config, number)), number
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
    named: Mapping[str, str | None],
    changed: Mapping[str, Any],
    env: Mapping[str, Any],
) -> str:
    """Say what sets a variant apart; values that may be secret are never shown."""
    words = [target] if k is None else [target, f"k={k}"]
    words += [f"{key}={value}" for key, value in named.items() if value]
    for name, value in changed.items():
        hidden = name in SECRET_OPTIONS
        words.append(
            f"without {name}" if value is None else " ".join(arguments({name: "***" if hidden else value}))
        )
    return " ".join([*words, *(f"env {name}" for name in env)])
