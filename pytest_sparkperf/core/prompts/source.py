"""The code prompt: a small Python module and a task on it."""

from __future__ import annotations

from pytest_sparkperf.core.prompts.template import PromptTemplate

_HEAD = '''$place $thing tracker. The module below keeps the books of a small warehouse: which $thing lies \
where, how long it has been waiting and what its storage costs. Read it carefully, then do the task that \
follows it.

```python
"""Positions, moves and storage fees of every $thing in the hall."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

FREE_PERIOD = timedelta(days=3)
FEE_PER_DAY = 1.75


class UnknownBay(Exception):
    """A bay that is not part of the hall's plan."""


@dataclass(frozen=True)
class $Thing:
    """One $thing; `bay` is None while it is on a truck."""

    number: str
    owner: str
    weight_kg: float
    arrived: datetime
    bay: str | None = None


class Hall:
    """The hall's plan and everything in it."""

    def __init__(self, bays: dict[str, float]) -> None:
        self._capacity_kg = dict(bays)
        self._stock: dict[str, $Thing] = {}
        self._moves: list[tuple[datetime, str, str | None, str | None]] = []

'''

_SECTIONS = (
    '''    def receive(self, item: $Thing, bay: str, now: datetime) -> None:
        """Put a $thing that came off a truck into a bay."""
        if item.number in self._stock:
            raise ValueError(f"{item.number} is in the hall already")
        self._check(bay, item.weight_kg)
        self._stock[item.number] = replace(item, bay=bay, arrived=now)
        self._moves.append((now, item.number, None, bay))
''',
    '''    def move(self, number: str, bay: str, now: datetime) -> None:
        """Carry a $thing from its bay to another one."""
        item = self._stock[number]
        if item.bay == bay:
            return
        self._check(bay, item.weight_kg)
        self._stock[number] = replace(item, bay=bay)
        self._moves.append((now, number, item.bay, bay))
''',
    '''    def load_kg(self, bay: str) -> float:
        """Return the weight that stands in one bay."""
        return sum(item.weight_kg for item in self._stock.values() if item.bay == bay)

    def _check(self, bay: str, weight_kg: float) -> None:
        if bay not in self._capacity_kg:
            known = ", ".join(sorted(self._capacity_kg))
            raise UnknownBay(f"there is no bay {bay!r}; the plan has {known}")
        if self.load_kg(bay) + weight_kg > self._capacity_kg[bay]:
            raise ValueError(f"bay {bay} cannot carry another {weight_kg} kg")
''',
    '''    def fees(self, now: datetime) -> dict[str, float]:
        """Return what each owner owes for the time beyond the free period."""
        owed: dict[str, float] = defaultdict(float)
        for item in self._stock.values():
            waited = now - item.arrived - FREE_PERIOD
            if waited > timedelta(0):
                owed[item.owner] += waited.days * FEE_PER_DAY
        return dict(owed)
''',
    '''    def release(self, number: str, now: datetime) -> $Thing:
        """Hand a $thing over to its owner's truck and forget it."""
        item = self._stock.pop(number)
        self._moves.append((now, number, item.bay, None))
        return replace(item, bay=None)
''',
)

_TAIL = """```

Task. Owners complain that a started day costs nothing, and the night shift has lost the trail of several \
moves. Rewrite the class with these changes, and answer with the complete module, without leaving anything \
out:

1. A started day beyond the free period counts as a whole day.
2. A new method `history(number)` returns every move of one $thing as a list of sentences in order of time, \
also after it was released.
3. A new method `fullest(count)` returns the bays that use the highest share of their capacity, highest first.
4. `release` refuses a $thing whose owner owes more than fifty, and says how much is owed.
5. No method may change anything when it raises an error.

Explain after the code, in a few sentences, which of the old methods could lose data and why.
"""

SOURCE = PromptTemplate(
    name="code",
    places=("Harbor", "Foundry", "Summit", "Canal", "Prairie", "Quarry", "Lagoon", "Glacier"),
    things=("parcel", "pallet", "crate", "barrel", "basket", "carton", "bundle", "canister"),
    head=_HEAD,
    sections=_SECTIONS,
    separator="\n",
    tail=_TAIL,
)
