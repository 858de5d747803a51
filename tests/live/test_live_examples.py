"""The examples on real servers: the same suites, attached to the servers of this session or starting them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from proven_run import proven_run
from vllm_serve import LiveServers

EXAMPLES = Path(__file__).parents[2] / "conftest_examples"


def test_vllm_serve_example_judges_a_real_server(
    live_server: LiveServers, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    shutil.copytree(EXAMPLES / "vllm_serve", pytester.path, dirs_exist_ok=True)
    urls = [("--sparkperf-url", f"{k}={live_server(k).url}") for k in (0, 3)]

    result = proven_run(pytester, *[word for url in urls for word in url])

    result.assert_outcomes(passed=3)
    assert "SIMULATED" not in result.stdout.str()
    result.stdout.fnmatch_lines(["*PASS min_decode=10: * tok/s (interval * to *)*"])


def test_mtp_equivalence_example_finds_a_real_server_equal(
    live_server: LiveServers, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    shutil.copytree(EXAMPLES / "mtp_equivalence", pytester.path, dirs_exist_ok=True)
    urls = [("--sparkperf-url", f"{k}={live_server(k).url}") for k in (0, 3)]

    result = proven_run(pytester, *[word for url in urls for word in url])

    result.assert_outcomes(passed=1)
    assert "SIMULATED" not in result.stdout.str()
    result.stdout.fnmatch_lines(
        [
            "  PASS same_output: * of * answers equal*",
            "    plain: PASS 12 of 12 equal, off against itself 12 of 12, *",
            "    tool calls: PASS *",
            "    own messages: PASS *",
            "    conversation, warm cache: not judged: *",
        ]
    )


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_mtp_sweep_example_says_which_k_is_the_fastest(
    live_server: LiveServers, live_config: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    live_server.stop()  # the suite starts its own, and there is memory for two
    shutil.copytree(EXAMPLES / "mtp_sweep", pytester.path, dirs_exist_ok=True)
    shutil.copy(live_config, pytester.path / "sparkperf.yaml")
    # A token takes a fortieth of what it takes on a GB10: too short an answer scatters.
    suite = pytester.path / "test_sweep.py"
    suite.write_text(suite.read_text().replace("output_tokens=128", "output_tokens=512"))

    for _ in range(3):  # other work on a test machine may leave a server unsteady
        result = pytester.runpytest_subprocess("--sparkperf", "-p", "no:cacheprovider")
        if "never became steady" not in result.stdout.str():
            break

    result.assert_outcomes(passed=1)
    lines = result.stdout.str().splitlines()
    (title,) = [at for at, line in enumerate(lines) if line.split()[:2] == ["k", "decode_tok_s"]]
    assert [line.split()[0] for line in lines[title + 1 : title + 5]] == ["0", "1", "2", "3"]
    rates, gains = ([float(line.split()[at]) for line in lines[title + 1 : title + 5]] for at in (1, 2))
    assert gains == pytest.approx([rate / rates[0] for rate in rates], rel=0.1)
    # The fastest is the one that gained most where it was compared with no draft in turn.
    fastest = re.match(r"  k=(\d) is the fastest, ", lines[title + 5])
    assert fastest is not None, lines[title + 5]
    assert gains[int(fastest[1])] == max(gains)
