"""Frames server-sent events out of bytes, however the network cut them."""

from __future__ import annotations

_BOM = b"\xef\xbb\xbf"
_SILENT_FIELDS = frozenset({b"event", b"id", b"retry"})


class SseDecoder:
    """Collects the payloads of ``data:`` fields; lines end at CR, LF or CRLF bytes and nowhere else.

    Follows the event stream format of the HTML standard (section 9.2.6), with one liberty: :meth:`close`
    returns a last event whose blank line never came, since gateways drop it. Payloads stay bytes: they are
    UTF-8 whatever the content-type says, and a character may be cut between two reads.

    ``foreign_lines`` counts lines that are no field of this format, ``first_foreign`` holds the first one.
    """

    __slots__ = ("_cut", "_data", "_fresh", "_skip_lf", "first_foreign", "foreign_lines")

    def __init__(self) -> None:
        self.foreign_lines = 0
        self.first_foreign = b""
        self._cut: list[bytes] = []  # pieces of a line whose end has not come, joined once
        self._data: list[bytes] = []  # the data fields of an event whose blank line has not come
        self._skip_lf = False  # the last byte was a CR: an LF in front of the next read belongs to it
        self._fresh = True

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes and return the payloads of the events that they complete."""
        if self._skip_lf and data:
            data = data.removeprefix(b"\n")
            self._skip_lf = False
        if b"\r" in data:
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = data.split(b"\n")
        rest = lines.pop()
        events = self._take(lines) if lines else []
        if rest:
            self._cut.append(rest)
        return events

    def close(self) -> list[bytes]:
        """Return what the end of the stream completes: at most one payload, perhaps cut short."""
        return self.feed(b"\n\n")

    def _take(self, lines: list[bytes]) -> list[bytes]:
        if self._cut:
            lines[0] = b"".join([*self._cut, lines[0]])
            self._cut = []
        if self._fresh:
            lines[0] = lines[0].removeprefix(_BOM)
            self._fresh = False
        events = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b" ", 5) else line[5:])
            elif line:
                self._take_other(line)
            elif self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events

    def _take_other(self, line: bytes) -> None:
        name = line.partition(b":")[0]
        if name == b"data":
            self._data.append(b"")
        elif name and name not in _SILENT_FIELDS:  # an empty name is a comment
            self.foreign_lines += 1
            self.first_foreign = self.first_foreign or line
