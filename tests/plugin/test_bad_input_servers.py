"""A server that cannot be had or is not the one asked for: said at once, in the server's own words too."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path

import pytest
from suite_runner import Suite

from pytest_sparkperf.sim.faults import FAULTS as SIM_FAULTS

FAKE = Path(__file__).parents[1] / "data" / "servers" / "fake_vllm.py"
SMALL = "prompt_tokens=40, output_tokens=16, max_rounds=3"
BANNER = "  | (APIServer pid=1) INFO 05-01 18:55:00 [api_server.py:1] vLLM API server version 0.32.0"
MODEL = "nvidia/Qwen3.6-35B-A3B-NVFP4"

TARGETS = """version: 1
targets:
  away: {{launch: attach, url: "http://127.0.0.1:{free}"}}
  renamed: {{launch: attach, url: "{url}", model: my-model}}
  plain: {{launch: attach, url: "{url}", k: 3}}
  taken: {{launch: sim, args: {{port: {taken}}}}}
  missing: {{launch: vllm, model: m}}
  moved: {{launch: vllm, model: m, executable: ./bin/vlm}}
  other: {{launch: vllm, model: m, executable: ./bin/vllm, env: {{FAKE_WAY: wrong_model}}}}
  unspec: {{launch: vllm, model: m, k: 3, executable: ./bin/vllm, env: {{FAKE_WAY: wrong_k}}}}
  dies: {{launch: vllm, model: m, executable: ./bin/vllm, env: {{FAKE_WAY: dies}}}}
  hangs: {{launch: vllm, model: m, executable: ./bin/vllm, env: {{FAKE_WAY: hangs}}, ready_timeout_s: 1}}
  mute:
    {{launch: vllm, model: m, executable: ./bin/vllm, env: {{FAKE_WAY: generation_hangs}},
      ready_timeout_s: 3}}
  misspelt: {{launch: sim, args: {{fault: truncate}}}}
"""
FAULTS = {
    "away": (
        "nothing answers at http://127.0.0.1:{free} ([Errno 111] Connection refused); start the server, or "
        "correct the URL of target 'away'."
    ),
    "renamed": (
        f"{{url}} serves '{MODEL}', not 'my-model'; set `model` of target 'renamed' to a name that it "
        "serves, or attach the right server."
    ),
    "plain": (
        "{url} serves k=0 (no speculative decoding), the gate asks for k=3; attach a server started with "
        "num_speculative_tokens 3, or ask for k=0."
    ),
    "taken": (
        "port {taken} already answers, and server 'taken k=0' would not be the one measured; stop what "
        "listens there, or remove `port` from the args of target 'taken' (a free port is used then)."
    ),
    "missing": (
        "'vllm' is not on PATH; install vLLM, or set `executable:` of target 'missing' to the vllm command "
        "of the environment that has it."
    ),
    "moved": (
        "'{path}/bin/vlm' is no executable file; install vLLM, or set `executable:` of target 'moved' to "
        "the vllm command of the environment that has it."
    ),
    "other": (
        "server 'other k=0' serves 'other', not 'm'; set `model` or the option served-model-name of target "
        "'other' to a name that it serves."
    ),
    "unspec": (
        "server 'unspec k=3' was started with num_speculative_tokens 3, but serves k=0 (no speculative "
        "decoding); check `args` and `speculative` of target 'unspec', and whether this vLLM knows that "
        "speculator."
    ),
    "dies": (
        "server 'dies k=0' exited with status 1 while starting: ValueError: NvFp4 MoE backend 'MARLIN' does "
        "not support the deployment configuration since kernel does not support quantization scheme u8. "
        "The log '{logs}/dies-k=0.log' ends with:\n"
        f"{BANNER}\n"
        "  | (EngineCore pid=187) ERROR 05-01 18:55:06 [core.py:1512] ValueError: NvFp4 MoE backend 'MARLIN' "
        "does not support the deployment configuration since kernel does not support quantization scheme "
        "u8.\n  | (APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.\n"
        "  | ::error::a line that must not reach the runner as a command"
    ),
    "hangs": (
        "server 'hangs k=0' was not ready within 1 s: nothing listened on port PORT. If it only needs "
        "longer, raise `ready_timeout_s` of target 'hangs'. The log '{logs}/hangs-k=0.log' ends with:\n"
        f"{BANNER}"
    ),
    "mute": (
        "server 'mute k=0' was not ready within 3 s: a generation of 2 tokens gave no answer within TIME s "
        "(/health answers 200). If it only needs longer, raise `ready_timeout_s` of target 'mute'. The log "
        f"'{{logs}}/mute-k=0.log' ends with:\n{BANNER}"
    ),
    "misspelt": (
        "server 'misspelt k=0' exited with status 2 while starting. The log '{logs}/misspelt-k=0.log' ends "
        "with:\n  | sparkperf sim: error: --fault 'truncate': no such fault. Valid "
        f"faults: {', '.join(SIM_FAULTS)}."
    ),
}
_HEADLINE = re.compile(r"^_+ ERROR at setup of test_it\[(\w+)\] _+\n", re.MULTILINE)


def told(out: str) -> dict[str, str]:
    """Return what stands below each headline, with ports and times that differ from run to run left out."""
    errors = out.partition("= ERRORS =")[2].partition("= short test summary info =")[0]
    _, *parts = _HEADLINE.split(errors.rpartition("\n")[0])
    texts = (re.sub(r"on port \d+", "on port PORT", part.strip("\n")) for part in parts[1::2])
    texts = (re.sub(r"within [\d.]+ s \(", "within TIME s (", text) for text in texts)
    return dict(zip(parts[::2], texts, strict=True))


@pytest.mark.parametrize(
    ("arguments", "names"),
    [((), list(FAULTS)), (("-q",), ["away", "renamed", "plain", "taken", "missing", "dies"])],
    ids=["plain", "quiet"],
)
def test_each_is_one_sentence_and_nothing_is_left(
    suite: Suite, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], names: list[str]
) -> None:
    path = suite.pytester.path
    (path / "bin").mkdir()
    (path / "bin" / "vllm").write_text(f'#!/bin/sh\nexec {sys.executable} -S {FAKE} "$@"\n')
    (path / "bin" / "vllm").chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    marks = ", ".join(f"pytest.param({name!r}, marks=sparkperf(target={name!r}))" for name in names)
    suite.pytester.makepyfile(
        "import pytest\nfrom pytest_sparkperf import sparkperf\n"
        f"@pytest.mark.parametrize('name', [{marks}])\n"
        f"@sparkperf({SMALL})\ndef test_it(name): ...\n\ndef test_plain(): ...\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as holder, socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound and not listening: connecting to it is refused
        facts = {
            "free": reserved.getsockname()[1],
            "taken": holder.getsockname()[1],
            "url": suite.url,
            "path": path,
        }
        suite.yaml(TARGETS.format(**facts))
        result = suite.run(*arguments, attach=False)

    result.assert_outcomes(passed=1, errors=len(names))
    found = told(str(result.stdout))
    logs = found["dies"].partition("The log '")[2].partition("/dies-k=0.log'")[0]
    assert re.fullmatch(r"/.*/sparkperf0", logs)
    assert found == {name: FAULTS[name].format(logs=logs, **facts) for name in names}


def test_a_request_that_cannot_run_at_once_is_refused(suite: Suite) -> None:
    suite.yaml("version: 1\ntargets:\n  small: {launch: sim, args: {max-num-seqs: 2}}\n")
    suite.pytester.makepyfile(
        "from pytest_sparkperf import sparkperf\n"
        f"@sparkperf(concurrency=3, {SMALL})\ndef test_gate(): ...\n"
        f"def test_body(sparkperf_measure): sparkperf_measure(concurrency=3, {SMALL})\n"
    )

    result = suite.run("--tb=short", attach=False)

    result.assert_outcomes(errors=1, failed=1)
    out = re.sub(r"http://127.0.0.1:\d+", "URL", str(result.stdout))
    text = (
        "concurrency=3 is more than the 2 requests that URL runs at once (max-num-seqs), so it would "
        "measure the queue; lower it, start the server with --max-num-seqs 3, or say queueing=True if the "
        "queue is what you want to measure"
    )
    assert f"\n{text}\n" in out
    assert f"\nE   pytest_sparkperf.core.errors.ConfigError: {text}\n" in out
