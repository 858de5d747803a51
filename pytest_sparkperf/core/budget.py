"""How long one measurement may take: its budget, and what the pass under way at its end gets on top."""

from __future__ import annotations

from dataclasses import dataclass

LAST_PASS_S = 60.0


@dataclass(frozen=True, slots=True)
class Budget:
    """The seconds of one measurement. Whether they are spent is asked between passes, so that none is lost.

    A pass may hang on a server that sends a token now and then: it is broken off after the same time again,
    ``last_pass_s`` at least.
    """

    seconds: float
    last_pass_s: float = LAST_PASS_S

    @property
    def longest_s(self) -> float:
        """The time after which a measurement is broken off."""
        return self.seconds + self._more_s

    def spent(self) -> str:
        """Say that the budget was spent before all was decided."""
        return f"the budget of {self.seconds:g} s was spent: raise budget_s, or measure less"

    def overrun(self) -> str:
        """Say that the last pass had to be broken off."""
        return (
            f"the budget of {self.seconds:g} s was spent and a pass did not end within {self._more_s:g} s "
            f"more: raise budget_s, ask for fewer output_tokens, or see what holds the server up"
        )

    @property
    def _more_s(self) -> float:
        return max(self.seconds, self.last_pass_s)
