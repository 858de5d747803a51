"""How one hand-written prompt becomes many: words in slots, sections rotated, never a shared beginning."""

from __future__ import annotations

from dataclasses import dataclass
from string import Template

from pytest_sparkperf.core.frozen import EMPTY, FrozenMap


@dataclass(frozen=True, slots=True)
class Prompt:
    """A named text to send; the name is what per-prompt results are listed under.

    ``history`` holds earlier turns of its conversation as (role, text); ``output_tokens`` is how long its
    answer shall be, where its dataset says so. ``fields`` are request fields of its own, such as messages.
    """

    name: str
    text: str
    history: tuple[tuple[str, str], ...] = ()
    output_tokens: int | None = None
    fields: FrozenMap = EMPTY


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """A hand-written prompt with slots ``$place``, ``$thing`` and ``$Thing``.

    ``head`` begins with ``$place $thing``, so that variations differ from their first words on and can share
    no block of a prefix cache. ``sections`` make sense in any order.
    """

    name: str
    places: tuple[str, ...]
    things: tuple[str, ...]
    head: str
    sections: tuple[str, ...]
    separator: str
    tail: str

    @property
    def size(self) -> int:
        """How many different variations there are."""
        return len(self.places) * len(self.things)

    def variation(self, number: int) -> Prompt:
        """Build variation ``number`` (0 to ``size - 1``); 0 is the prompt as written.

        Consecutive numbers differ in place, thing and order of sections at once.
        """
        thing = self.things[number % len(self.things)]
        place = self.places[(number + number // len(self.things)) % len(self.places)]
        turn = number % len(self.sections)
        body = self.separator.join(self.sections[turn:] + self.sections[:turn])
        text = Template(self.head + body + self.tail).substitute(
            place=place, thing=thing, Thing=thing.capitalize()
        )
        return Prompt(self.name if number == 0 else f"{self.name}-{number}", text)
