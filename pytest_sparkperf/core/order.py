"""Which requests a pass sends, in which order, and after which rounds a gate may decide."""

from __future__ import annotations

import math
from typing import Literal

from pytest_sparkperf.core.constants import LOOKS
from pytest_sparkperf.core.errors import ConfigError

Arm = Literal["A", "B"]
# One request, or one burst: the cell that is measured and the server that serves it.
Step = tuple[int, Arm]

# B is the server under test, A the one it is compared with; without a comparison there is only B.
SUBJECT: Arm = "B"
_SMALLEST_ROUND = 4


def cells_for(n_prompts: int) -> tuple[int, ...]:
    """Return the prompt of each cell of a round: every prompt equally often, an even number of at least 4."""
    repeats = max(1, math.ceil(_SMALLEST_ROUND / n_prompts))
    if n_prompts * repeats % 2:
        repeats += 1
    return tuple(range(n_prompts)) * repeats


def ab_order(index: int, cells: int) -> tuple[Step, ...]:
    """Return the order of an A/B pass: AB BA BA AB, flipped every pass, so that linear drift cancels."""
    steps: list[Step] = []
    for cell in range(cells):
        a_first = (index + (cell + 1) // 2) % 2 == 0
        steps += [(cell, "A"), (cell, "B")] if a_first else [(cell, "B"), (cell, "A")]
    return tuple(steps)


def single_order(cells: int) -> tuple[Step, ...]:
    """Return the order of a pass on one server: its cells as they come."""
    return tuple((cell, SUBJECT) for cell in range(cells))


def looks_for(max_rounds: int) -> tuple[int, ...]:
    """Return the rounds after which a budget is looked at: 3, 4, 6, 8, 12 up to it, and itself."""
    if (
        isinstance(max_rounds, bool)
        or not isinstance(max_rounds, int)
        or not LOOKS[0] <= max_rounds <= LOOKS[-1]
    ):
        raise ConfigError(
            f"max_rounds={max_rounds!r} is not a budget: use a whole number from {LOOKS[0]} to {LOOKS[-1]}; "
            "the looks of a verdict are planned for no other"
        )
    return tuple(sorted({look for look in LOOKS if look < max_rounds} | {max_rounds}))
