"""How a fault bends what a simulated model says, and which of its answers are bent."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pytest_sparkperf.sim.faults import Faults


@dataclass(frozen=True, slots=True)
class Twist:
    """What is bent in one answer; positions count its tokens from 0 and move running text only.

    From ``fork_at`` on it is another text, the one that ``fork_label`` names; at ``tie_at`` two tokens are
    all but equally likely; from ``repeat_at`` on the text goes in circles; at ``end_at`` the model ends.
    """

    fork_at: int | None = None
    fork_label: str = ""
    tie_at: int | None = None
    repeat_at: int | None = None
    end_at: int | None = None
    altered_argument: bool = False
    leak: bool = False


STRAIGHT = Twist()


class Twister:
    """Decides for each request; remembers which prompts it has seen, and when the process started."""

    def __init__(self, launch: str) -> None:
        self._launch = launch
        self._answers: Counter[tuple[int, ...]] = Counter()

    def twist(
        self, faults: Faults, prompt_ids: tuple[int, ...], *, cached_tokens: int, ignore_eos: bool
    ) -> Twist:
        """Return the twist of the next answer to a prompt of which ``cached_tokens`` are in the cache."""
        fork_at, fork_label = self._fork(faults, prompt_ids)
        tie = faults.tie_at if faults.tie_at is not None else faults.tie_flip_at
        return Twist(
            fork_at=fork_at,
            fork_label=fork_label,
            tie_at=tie,
            repeat_at=faults.repeat_after,
            end_at=faults.past_end_after if ignore_eos else None,
            altered_argument=faults.altered_argument or (faults.warm_breaks and cached_tokens > 0),
            leak=faults.leak,
        )

    def _fork(self, faults: Faults, prompt_ids: tuple[int, ...]) -> tuple[int | None, str]:
        if faults.unsteady_after is not None:
            self._answers[prompt_ids] += 1
            if self._answers[prompt_ids] % 2 == 0:
                return faults.unsteady_after, "unsteady"
        if faults.launch_after is not None:
            return faults.launch_after, self._launch
        if faults.tie_flip_at is not None:
            return faults.tie_flip_at, "tie"
        return faults.diverge_after, "diverge"
