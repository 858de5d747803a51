"""Reads a document of plain values (sparkperf.yaml, a hook's answer) into targets, or says what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from pytest_sparkperf.core.faults import DocumentError, Fault, shown, unknown_keys
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.keywords import KEYWORDS
from pytest_sparkperf.core.kinds import COUNT, did_you_mean, environment_text
from pytest_sparkperf.core.load_words import load_faults
from pytest_sparkperf.core.target_keys import TARGET_KEYS, command_words, root_url
from pytest_sparkperf.core.targets import (
    LAUNCHES,
    MAX_RESIDENT,
    SILENCE_TIMEOUT_S,
    Commands,
    Config,
    Hardware,
    Target,
)
from pytest_sparkperf.core.vllm_options import named_options

_SECTIONS = ("version", "default_target", "max_resident", "targets", "workloads")
# Keys without which a launch kind cannot start, and what to write.
_NEEDED = {
    "attach": ("url", "give the root of the running server, such as http://127.0.0.1:8000"),
    "docker": ("image", "give the container image that holds vLLM, such as vllm/vllm-openai:v0.24.0"),
    "recipe": ("recipe", "give the path of a recipe's YAML file"),
    "command": ("start", 'give the command that starts the server, such as "./serve.sh {port}"'),
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# The keys of a workload are the mark's own keywords for a load.
_LOAD = {name: word.kind for name, word in KEYWORDS.items() if word.group == "load" and name != "workload"}


def parse_config(document: Any) -> Config:
    """Read a whole document; raises DocumentError with every fault at once."""
    faults = document_faults(document)
    if faults:
        raise DocumentError(faults)
    targets, workloads = document.get("targets") or {}, document.get("workloads") or {}
    return Config(
        default_target=document.get("default_target"),
        max_resident=document.get("max_resident", MAX_RESIDENT),
        targets=MappingProxyType({name: _target(name, keys) for name, keys in targets.items()}),
        workloads=MappingProxyType({name: FrozenMap(keys) for name, keys in workloads.items()}),
    )


def parse_targets(targets: Any) -> Mapping[str, Target]:
    """Read targets by name, written as under ``targets:`` of sparkperf.yaml; raises DocumentError."""
    return parse_config({"version": 1, "targets": targets}).targets


def document_faults(document: Any) -> tuple[Fault, ...]:
    """Return everything that is wrong with a document."""
    if not isinstance(document, Mapping):
        return (
            Fault((), f"{shown(document)} is not a mapping of keys; start with version: 1, then targets:"),
        )
    return tuple(_document_faults(document))


def _document_faults(document: Mapping[Any, Any]) -> Iterator[Fault]:
    yield from unknown_keys(document, _SECTIONS)
    if "version" not in document:
        yield Fault((), "version is missing; write version: 1 at the top")
    elif document["version"] != 1 or isinstance(document["version"], bool | float):
        seen = shown(document["version"])
        yield Fault(("version",), f"{seen} is not a known version of this file; write version: 1")
    for section, faults in (("targets", _target_faults), ("workloads", _workload_faults)):
        named = document.get(section)
        if not isinstance(named, Mapping | None):
            text = f"{shown(named)} is not a mapping; write each of the {section} under a name of its own"
            yield Fault((section,), text)
            continue
        for name, keys in (named or {}).items():
            yield from _name_faults(section, name)
            yield from (Fault((section, name, *fault.path), fault.text) for fault in faults(keys))
    if "max_resident" in document and not COUNT.accepts(document["max_resident"]):
        text = (
            f"{shown(document['max_resident'])} is not {COUNT.says}; give how many servers may be up at once"
        )
        yield Fault(("max_resident",), text)
    if "default_target" in document:
        yield from _default_faults(document["default_target"], document.get("targets"))


def _default_faults(default: Any, targets: Any) -> Iterator[Fault]:
    names = [str(name) for name in targets] if isinstance(targets, Mapping) else []
    if default not in names:
        there = f"targets are {', '.join(names)}" if names else "there are no targets"
        near = did_you_mean(default, names) or ";"
        yield Fault(("default_target",), f"{shown(default)} is not one of the targets{near} {there}")


def _name_faults(section: str, name: Any) -> Iterator[Fault]:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        text = f"{shown(name)} is not a name for one of the {section}; use letters, digits, ._-"
        yield Fault((section, name), text)


def _workload_faults(keys: Any) -> Iterator[Fault]:
    if not isinstance(keys, Mapping):
        yield Fault((), f"{shown(keys)} is not a mapping; give keys of a load, such as output_tokens: 256")
        return
    yield from unknown_keys(keys, _LOAD)
    for key, value in keys.items():
        if key in _LOAD and not _LOAD[key].accepts(value):
            says = _LOAD[key].says.replace("True or False", "true or false").replace("a dict", "a mapping")
            yield Fault((key,), f"{shown(value)} is not {says}")
    yield from (Fault((), text) for text in load_faults(keys))


def _target_faults(keys: Any) -> Iterator[Fault]:
    if not isinstance(keys, Mapping):
        yield Fault((), f"{shown(keys)} is not a mapping; give the keys of a target, at least launch:")
        return
    if "launch" not in keys:
        yield Fault((), f"launch is missing; give one of {', '.join(LAUNCHES)}")
        return
    launch = keys["launch"]
    if launch not in LAUNCHES:
        near = did_you_mean(launch, LAUNCHES) or ";"
        yield Fault(
            ("launch",), f"{shown(launch)} is not a launch kind{near} valid are {', '.join(LAUNCHES)}"
        )
        return
    yield from _misplaced_keys(keys, launch)
    for key, value in keys.items():
        for fault in TARGET_KEYS[key].faults(value) if key in TARGET_KEYS else ():
            yield Fault((key, *fault.path), fault.text)
    if "probe" in keys and "hardware" in keys:
        yield Fault(
            ("probe",), "and hardware both say what the server's machine is; keep one, probe reads it there"
        )
    needed, way_out = _NEEDED.get(launch, (None, ""))
    if needed is not None and needed not in keys:
        yield Fault((), f"{needed} is missing; {way_out}")
    elif launch == "command" and "url" not in keys and "{port}" not in str(keys["start"]):
        yield Fault(
            (),
            "url is missing, and start: has no {port}; give the server's root as url:, or let start: take "
            "the port that is chosen for it",
        )


def _misplaced_keys(keys: Mapping[Any, Any], launch: str) -> Iterator[Fault]:
    valid = [key for key, rule in TARGET_KEYS.items() if launch in rule.launches]
    yield from unknown_keys({key: None for key in keys if key not in TARGET_KEYS}, valid)
    for key in keys:
        if key in TARGET_KEYS and key not in valid:
            kinds = [kind for kind in LAUNCHES if kind in TARGET_KEYS[key].launches]
            where = " and ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1])))
            text = f"is for launch: {where}, not for launch: {launch}, whose keys are {', '.join(valid)}"
            yield Fault((key,), text)


def _target(name: str, keys: Mapping[str, Any]) -> Target:
    """Build a target from keys that have no fault."""
    url, hardware = keys.get("url"), keys.get("hardware")
    urls = url if isinstance(url, Mapping) else {} if url is None else {None: url}
    return Target(
        name=name,
        launch=keys["launch"],
        executable=keys.get("executable"),
        model=keys.get("model"),
        args=FrozenMap(named_options(keys.get("args", {}))),
        env=FrozenMap({variable: environment_text(text) for variable, text in keys.get("env", {}).items()}),
        speculative=FrozenMap(keys.get("speculative")),
        k=keys.get("k"),
        resident=FrozenMap(named_options(keys.get("resident", {}))),
        ready_timeout_s=keys.get("ready_timeout_s"),
        urls=tuple((k, root_url(one)) for k, one in urls.items()),
        api_key_env=keys.get("api_key_env"),
        traffic=keys.get("traffic", "exclusive"),
        hardware=Hardware(**hardware) if hardware else None,
        probe=command_words(keys.get("probe", ())),
        image=keys.get("image"),
        mounts=tuple(keys.get("mounts", ())),
        recipe=keys.get("recipe"),
        overrides=FrozenMap(keys.get("overrides")),
        commands=_commands(keys),
        memory_floor_gib=keys.get("memory_floor_gib"),
        silence_timeout_s=float(keys.get("silence_timeout_s", SILENCE_TIMEOUT_S)),
    )


def _commands(keys: Mapping[str, Any]) -> Commands | None:
    if "start" not in keys:
        return None
    start, ready, stop = (command_words(keys.get(name, ())) for name in ("start", "ready", "stop"))
    return Commands(start, ready, stop)
