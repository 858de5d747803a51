"""When each chunk of each answer was handed to the kernel: the truth for clients' clocks."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path

# Enough for any test, little enough for a server that runs for days.
_KEPT = 20_000


@dataclass(slots=True)
class EmissionRecord:
    """One request's emissions, in seconds of the system-wide monotonic clock, right before each send."""

    request_id: str
    arrival_s: float
    prompt_tokens: int
    cached_tokens: int = 0
    emitted_s: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    outcome: str = "finished"  # or "aborted"

    def add(self, at_s: float, tokens: int) -> None:
        """Note one chunk."""
        self.emitted_s.append(at_s)
        self.tokens.append(tokens)

    def to_json(self) -> str:
        """Return the record as one line of JSON, with the totals readers want first."""
        ends = {
            "first_s": self.emitted_s[0] if self.emitted_s else None,
            "last_s": self.emitted_s[-1] if self.emitted_s else None,
            "output_tokens": sum(self.tokens),
        }
        return json.dumps(asdict(self) | ends)


class Recorder:
    """Keeps the records of ended requests and, where a file is given, appends each as one whole line."""

    def __init__(self, file: str | None) -> None:
        self._file = Path(file) if file else None
        self._records: deque[EmissionRecord] = deque(maxlen=_KEPT)

    def ended(self, record: EmissionRecord) -> None:
        """Take the record of a request that is over."""
        self._records.append(record)
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as stream:
                stream.write(record.to_json() + "\n")

    def lines(self) -> str:
        """Return all records kept, one line of JSON each, oldest first."""
        return "".join(record.to_json() + "\n" for record in self._records)
