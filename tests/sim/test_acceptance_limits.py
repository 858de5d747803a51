"""Limits on acceptance, judged from the counters around each round, and acceptance beside every speed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from gate_runner import K3, QUICK, run_gate, verdict
from simulator_process import StartSimulator

from pytest_sparkperf.adapters.server import attach_server
from pytest_sparkperf.core.acceptance import acceptance_since_start
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import make_variant


def test_limits_on_acceptance_are_judged_with_their_intervals(
    simulator: StartSimulator, tmp_path: Path
) -> None:
    url = simulator(*K3, fresh=True).url

    result = run_gate(tmp_path, url, min_acceptance_rate=0.3, min_acceptance_length=3.95)

    rate, length = verdict(result, "min_acceptance_rate"), verdict(result, "min_acceptance_length")
    assert (rate.outcome, length.outcome) == ("PASS", "FAIL")
    for one, figure in ((rate, result.acceptance_rate), (length, result.acceptance_length)):
        assert figure is not None
        assert one.estimate == pytest.approx(figure, rel=0.02)
        assert one.low is not None
        assert one.high is not None
        assert one.low < figure < one.high
    # The server served nobody else: its counters over its whole life hold the same drafts, warm-up included.
    counted = acceptance_since_start(attach_server(make_variant(_target(url))).metrics())
    assert counted is not None
    assert counted.rate == pytest.approx(result.acceptance_rate, rel=0.05)
    assert counted.drafts is not None
    assert result.drafts is not None
    assert 0 < result.drafts < counted.drafts


@pytest.mark.slow
def test_a_draft_of_which_nothing_is_accepted_is_flagged(simulator: StartSimulator, tmp_path: Path) -> None:
    url = simulator(*K3, "--acceptance", "0.000000001").url

    result = run_gate(tmp_path, url, min_acceptance_rate=0.5)

    assert result.acceptance_rate == 0
    found = verdict(result, "min_acceptance_rate")
    assert found.outcome == "FAIL"
    assert found.estimate == pytest.approx(0.001)
    [note] = result.notes
    assert re.fullmatch(
        r"none of \d+ drafted tokens was accepted: the draft does not belong to this model, or is broken",
        note,
    )


@pytest.mark.parametrize("gate", ["min_acceptance_rate", "min_acceptance_length"])
def test_a_server_without_drafts_cannot_meet_a_limit_on_acceptance(
    simulator: StartSimulator, tmp_path: Path, gate: str
) -> None:
    keywords: dict[str, Any] = {gate: 0.5}

    result = run_gate(tmp_path, simulator(*QUICK).url, **keywords)

    found = verdict(result, gate)
    assert found.outcome == "ERROR"
    assert found.reason == (
        "no speculative decoding: /metrics shows no spec_decode counters; a limit on acceptance needs a "
        "server with draft tokens (k) that counts them at /metrics"
    )


@pytest.mark.slow
def test_acceptance_among_other_traffic_is_not_judged_and_said_to_be_that(
    simulator: StartSimulator, tmp_path: Path
) -> None:
    url = simulator(*K3).url

    with pytest.raises(ConfigError) as raised:
        run_gate(tmp_path, url, traffic="shared", min_acceptance_rate=0.5)

    assert str(raised.value) == (
        "acceptance cannot be judged on target 'b', which says traffic: shared: its counters hold the "
        "drafts of others too; keep others off it and say traffic: exclusive"
    )
    result = run_gate(tmp_path, url, traffic="shared")
    assert result.notes == (
        "judged by the server's own counters, in which requests of others count too (traffic: shared)",
        "acceptance counts the requests of others too, as the target says traffic: shared",
    )


def _target(url: str) -> Target:
    return Target("own", "attach", urls=((None, url),))
