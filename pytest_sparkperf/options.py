"""Command line and ini options, read once into one frozen Settings."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from pytest_sparkperf.core.baseline import FOLDER
from pytest_sparkperf.core.document import parse_targets
from pytest_sparkperf.core.faults import DocumentError

Inconclusive = Literal["skip", "fail"]
MissingBaseline = Literal["fail", "skip"]

_NOT_YET = {
    "--sparkperf-json": "Reports",
    "--sparkperf-html": "Reports",
    "--sparkperf-markdown": "Reports",
    "--sparkperf-benchmark-json": "Reports",
    "--sparkperf-bmf": "Reports",
}
_LATER = "Not yet available: comes with the feature {!r}."
_URL_PER_K = (
    "say once per k which server has it, for example "
    "--sparkperf-url 0=http://host:8000 --sparkperf-url 3=http://host:8001"
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the options of this run say; the command line has already won over the ini file.

    ``baseline_ref``: the git ref that baselines are read from, None for the working tree; ``config_ref``:
    the one that the file is read from. ``resume``: the file of a run that was broken off. ``record_batch``
    marks records that one bootstrap makes.
    """

    enabled: bool
    config_file: Path | None
    target: str | None
    urls: tuple[tuple[int | None, str], ...]
    inconclusive: Inconclusive
    ci: bool
    rootdir: Path
    lock_timeout_s: float = 3600.0
    record: bool = False
    baseline_dir: Path = Path(FOLDER)
    baseline_ref: str | None = None
    missing_baseline: MissingBaseline = "fail"
    config_ref: str | None = None
    resume: Path | None = None
    record_batch: str | None = None
    keep_servers: bool = False


def add_options(parser: pytest.Parser) -> None:
    """Register the options; costs nothing at start-up and imports nothing of the measuring layers."""
    group = parser.getgroup("sparkperf", "performance gates for vLLM servers")
    group.addoption(
        "--sparkperf",
        dest="sparkperf_enabled",
        action="store_true",
        help="Measure and judge the tests marked with sparkperf; without it they are skipped.",
    )
    group.addoption(
        "--sparkperf-config",
        dest="sparkperf_config",
        metavar="FILE",
        help="File that names the servers (default: sparkperf.yaml in the root directory).",
    )
    group.addoption(
        "--sparkperf-config-ref",
        dest="sparkperf_config_ref",
        metavar="REF",
        help="Read that file as this git ref holds it, and list the limits that differ from the ref's.",
    )
    group.addoption(
        "--sparkperf-target",
        dest="sparkperf_target",
        metavar="NAME",
        help="Target to measure, for tests that name none (default: default_target of the file).",
    )
    group.addoption(
        "--sparkperf-url",
        dest="sparkperf_urls",
        metavar="[K=]URL",
        action="append",
        default=[],
        help="Attach to a running server; K= says its num_speculative_tokens. Repeatable.",
    )
    group.addoption(
        "--sparkperf-inconclusive",
        dest="sparkperf_inconclusive",
        choices=("skip", "fail"),
        help="What a gate does that could prove neither PASS nor FAIL (default: skip).",
    )
    group.addoption(
        "--sparkperf-resume",
        dest="sparkperf_resume",
        metavar="FILE",
        help="Keep each finished measurement in FILE, and do not measure again what stands there.",
    )
    group.addoption(
        "--sparkperf-lock-timeout",
        dest="sparkperf_lock_timeout",
        metavar="SECONDS",
        help="How long to wait while another run measures on this machine (default: 3600).",
    )
    group.addoption(
        "--sparkperf-keep-servers",
        dest="sparkperf_keep_servers",
        action="store_true",
        help="Leave the servers that are up at the end of the run; `sparkperf stop` ends them.",
    )
    _add_baseline_options(group)
    for name, feature in _NOT_YET.items():
        group.addoption(name, dest=_dest(name), metavar="...", help=_LATER.format(feature))
    parser.addini("sparkperf_config", "default of --sparkperf-config, relative to the root directory")
    parser.addini("sparkperf_lock_timeout", "default of --sparkperf-lock-timeout, in seconds")
    parser.addini("sparkperf_target", "default of --sparkperf-target")
    parser.addini("sparkperf_inconclusive", "default of --sparkperf-inconclusive: skip or fail")
    parser.addini("sparkperf_config_ref", "default of --sparkperf-config-ref")
    parser.addini("sparkperf_baseline_dir", "default of --sparkperf-baseline-dir, relative to the root")
    parser.addini("sparkperf_baseline_ref", "default of --sparkperf-baseline-ref")
    parser.addini("sparkperf_missing_baseline", "default of --sparkperf-missing-baseline: fail or skip")


def _add_baseline_options(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--sparkperf-record",
        dest="sparkperf_record",
        action="store_true",
        help="Keep the runs of gates with max_slowdown and no against= as baselines of this machine.",
    )
    group.addoption(
        "--sparkperf-record-batch", dest="sparkperf_record_batch", metavar="NAME", help=argparse.SUPPRESS
    )
    group.addoption(
        "--sparkperf-baseline-dir",
        dest="sparkperf_baseline_dir",
        metavar="DIR",
        help=f"Folder of the baselines (default: {FOLDER} in the root directory).",
    )
    group.addoption(
        "--sparkperf-baseline-ref",
        dest="sparkperf_baseline_ref",
        metavar="REF",
        help="Read baselines as this git ref holds them, such as origin/main, not from the working tree.",
    )
    group.addoption(
        "--sparkperf-missing-baseline",
        dest="sparkperf_missing_baseline",
        choices=("fail", "skip"),
        help="What a gate does of which nothing comparable is recorded on this machine (default: fail).",
    )


def read_settings(config: pytest.Config) -> Settings:
    """Read the options of this run; raises UsageError for one that cannot be used as written.

    Without --sparkperf nothing but the switch is read, so that no other run stumbles over what an ini file
    says about gates.
    """
    for name, feature in _NOT_YET.items():
        if config.getoption(_dest(name)):
            raise pytest.UsageError(
                f"{name} is not yet available (it comes with the feature {feature!r}); leave it out"
            )
    if not config.getoption("sparkperf_enabled"):
        return Settings(False, None, None, (), "skip", ci=False, rootdir=config.rootpath)
    urls = _urls(config)
    record, baseline_ref = config.getoption("sparkperf_record"), _either(config, "sparkperf_baseline_ref")
    if record and baseline_ref:
        raise pytest.UsageError(
            f"--sparkperf-record and --sparkperf-baseline-ref={baseline_ref} do not go together: a run that "
            "takes its baseline from a git ref judges a change, and a change is not what later ones are "
            "judged by; leave one of them out"
        )
    return Settings(
        enabled=True,
        config_file=_config_file(config),
        target=None
        if urls
        else config.getoption("sparkperf_target") or config.getini("sparkperf_target") or None,
        urls=urls,
        inconclusive=_inconclusive(config),
        ci=_in_ci(),
        rootdir=config.rootpath,
        lock_timeout_s=_lock_timeout_s(config),
        record=record,
        baseline_dir=_baseline_dir(config),
        baseline_ref=baseline_ref,
        missing_baseline=_missing_baseline(config),
        config_ref=_either(config, "sparkperf_config_ref"),
        resume=_resume(config),
        record_batch=config.getoption("sparkperf_record_batch"),
        keep_servers=_keep_servers(config),
    )


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def _keep_servers(config: pytest.Config) -> bool:
    keep = bool(config.getoption("sparkperf_keep_servers"))
    if keep and _in_ci():
        raise pytest.UsageError(
            "--sparkperf-keep-servers is refused with CI set: a server that outlives its job holds the "
            "memory of every job after it; leave it out"
        )
    return keep


def _either(config: pytest.Config, name: str) -> str | None:
    """Return what the command line says, or else the ini file; None where neither does."""
    return config.getoption(name) or config.getini(name) or None


def _baseline_dir(config: pytest.Config) -> Path:
    if named := config.getoption("sparkperf_baseline_dir"):
        return config.invocation_params.dir / str(named)
    return config.rootpath / (config.getini("sparkperf_baseline_dir") or FOLDER)


def _missing_baseline(config: pytest.Config) -> MissingBaseline:
    value = _either(config, "sparkperf_missing_baseline") or "fail"
    if value == "fail":
        return "fail"
    if value == "skip":
        return "skip"
    raise pytest.UsageError(f"sparkperf_missing_baseline = {value} in the ini file; valid are fail and skip")


def _lock_timeout_s(config: pytest.Config) -> float:
    written = config.getoption("sparkperf_lock_timeout") or config.getini("sparkperf_lock_timeout") or "3600"
    try:
        seconds = float(written)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise pytest.UsageError(
            f"--sparkperf-lock-timeout={written}: give the seconds to wait while another run measures on "
            f"this machine, such as 3600, or 0 to fail at once"
        )
    return seconds


def parse_url(text: str) -> tuple[int | None, str]:
    """Split ``[K=]URL``; raises UsageError when either part is not what it should be."""
    k_text, equals, url = text.partition("=")
    k: int | None = None
    if equals and k_text.isascii() and k_text.isdecimal():
        k = int(k_text)
    else:
        url = text
    try:
        target = parse_targets({"url": {"launch": "attach", "url": url}})["url"]
    except DocumentError as error:
        # Its text says nothing of what was written where that may hold a password.
        raise pytest.UsageError(f"--sparkperf-url [K=]URL: {error.faults[0].text}") from None
    return k, target.urls[0][1]


def _urls(config: pytest.Config) -> tuple[tuple[int | None, str], ...]:
    urls = tuple(parse_url(text) for text in config.getoption("sparkperf_urls"))
    target = config.getoption("sparkperf_target")
    if urls and target:
        raise pytest.UsageError(
            f"--sparkperf-url and --sparkperf-target={target} both say what to measure; give one of them"
        )
    ks = [k for k, _ in urls]
    if len(ks) > 1 and None in ks:
        raise pytest.UsageError(
            f"--sparkperf-url was given {len(ks)} times, not always with a k; {_URL_PER_K}"
        )
    for k in ks:
        if ks.count(k) > 1:
            raise pytest.UsageError(f"--sparkperf-url was given {ks.count(k)} times for k={k}; {_URL_PER_K}")
    return urls


def _dest(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


def _config_file(config: pytest.Config) -> Path | None:
    """The file to read: None when none was named and the default one is not there.

    A git ref may have it where the working tree has not.
    """
    elsewhere = _either(config, "sparkperf_config_ref") is not None
    if named := config.getoption("sparkperf_config"):
        path = config.invocation_params.dir / str(named)
        return path if elsewhere else _existing(path, f"--sparkperf-config={named}")
    if named := config.getini("sparkperf_config"):
        path = config.rootpath / str(named)
        return path if elsewhere else _existing(path, f"sparkperf_config = {named} in the ini file")
    path = config.rootpath / "sparkperf.yaml"
    return path if elsewhere or path.is_file() else None


def _existing(path: Path, written: str) -> Path:
    if not path.is_file():
        raise pytest.UsageError(
            f"{written}: there is no file {str(path)!r}; name the file that describes the servers, or leave "
            f"this out to use sparkperf.yaml in the root directory"
        )
    return path


def _inconclusive(config: pytest.Config) -> Inconclusive:
    value = config.getoption("sparkperf_inconclusive") or config.getini("sparkperf_inconclusive") or "skip"
    if value == "skip":
        return "skip"
    if value == "fail":
        return "fail"
    raise pytest.UsageError(f"sparkperf_inconclusive = {value} in the ini file; valid are skip and fail")


def _resume(config: pytest.Config) -> Path | None:
    """Return the file of a run to be resumed, relative to where pytest was called.

    Not in CI: what stands in a file is not measured, so that a change could bring its own figures.
    """
    name: str | None = config.getoption("sparkperf_resume")
    if name is None:
        return None
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):
        raise pytest.UsageError(
            f"--sparkperf-resume={name} is refused with CI set, where gates must measure and not read what "
            "somebody measured before; leave it out"
        )
    return Path(config.invocation_params.dir) / name
