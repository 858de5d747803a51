from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_sparkperf.core.sse import SseDecoder


def decode(*pieces: bytes) -> list[bytes]:
    decoder = SseDecoder()
    return [payload for piece in pieces for payload in decoder.feed(piece)] + decoder.close()


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_lines_end_at_lf_cr_and_crlf(end: bytes) -> None:
    text = b"data: one" + end + end + b"data: two" + end + end
    assert decode(text) == [b"one", b"two"]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_stream_read_byte_by_byte_gives_the_same_events(end: bytes) -> None:
    text = (
        b"\xef\xbb\xbfdata: one" + end + b"data:two" + end + end + b": ping" + end + end + b"data" + end + end
    )
    assert decode(*(bytes([byte]) for byte in text)) == [b"one\ntwo", b""]


def test_an_event_is_complete_with_its_blank_line_and_not_before() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: one\r\n\r") == [b"one"]
    assert decoder.feed(b"\ndata: two\r\n") == []
    assert decoder.feed(b"\r\n") == [b"two"]
    assert decoder.close() == []


def test_one_space_after_the_colon_is_optional_and_a_second_one_is_data() -> None:
    assert decode(b"data:a\n\ndata: b\n\ndata:  c\n\n") == [b"a", b"b", b" c"]


def test_data_lines_of_one_event_are_joined_with_lf() -> None:
    assert decode(b'data: {"a":\ndata: 1}\n\n') == [b'{"a":\n1}']


def test_other_fields_and_comments_are_skipped() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"event: delta\nid: 7\nretry: 10\n: keep-alive\n\ndata: a\n\n") == [b"a"]
    assert decoder.foreign_lines == 0


def test_a_byte_order_mark_is_skipped_at_the_start_only() -> None:
    assert decode(b"\xef\xbb", b"\xbfdata: a\n\n") == [b"a"]
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\n\n\xef\xbb\xbfdata: b\n\n") == [b"a"]
    assert (decoder.foreign_lines, decoder.first_foreign) == (1, b"\xef\xbb\xbfdata: b")


def test_separators_that_are_no_line_end_of_this_format_stay_in_the_data() -> None:
    payload = "\u2028 \u2029 \u0085 \v \f \x1c".encode()
    assert decode(b"data: " + payload + b"\n\n") == [payload]


def test_the_end_of_the_stream_completes_an_event_without_its_blank_line() -> None:
    assert decode(b"data: a\n\ndata: [DONE]") == [b"a", b"[DONE]"]
    assert decode(b"data: a\n\ndata: [DONE]\n") == [b"a", b"[DONE]"]
    assert decode(b"data: a\r") == [b"a"]


def test_what_is_no_event_stream_is_counted_and_its_first_line_kept() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"<html>\n<body>Bad gateway") == []
    assert decoder.close() == []
    assert (decoder.foreign_lines, decoder.first_foreign) == (2, b"<html>")


def test_time_grows_with_the_length_of_a_line_and_not_with_its_square() -> None:
    def seconds(pieces: int) -> float:
        decoder = SseDecoder()
        decoder.feed(b"data: ")
        started = time.process_time()
        for _ in range(pieces):
            decoder.feed(b"x" * 1024)
        assert len(decoder.feed(b"\n\n")[0]) == pieces * 1024
        return time.process_time() - started

    seconds(1000)
    # Ten times the length; a decoder that copies the line at each read would take a hundred times as long.
    assert min(seconds(20_000) for _ in range(3)) < 40 * min(seconds(2_000) for _ in range(3))


LINES = st.lists(
    st.sampled_from(
        [
            b"",
            b"",
            b"data: {}",
            b"data:x",
            b"data",
            b"data:  y",
            b": c",
            b"id: 1",
            b"junk",
            "data: é✅".encode(),
        ]
    )
    | st.binary(max_size=8).map(lambda raw: b"data: " + raw.replace(b"\r", b"").replace(b"\n", b"")),
    max_size=12,
)


@settings(deadline=None)
@given(
    lines=LINES,
    ends=st.lists(st.sampled_from([b"\n", b"\r", b"\r\n"]), min_size=12, max_size=12),
    cuts=st.lists(st.integers(0, 200)),
    bom=st.sampled_from([b"", b"\xef\xbb\xbf"]),
)
def test_any_cutting_of_a_stream_gives_the_same_events(
    lines: list[bytes], ends: list[bytes], cuts: list[int], bom: bytes
) -> None:
    text = bom + b"".join(line + end for line, end in zip(lines, ends, strict=False))
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    assert decode(*(text[start:end] for start, end in pairwise(bounds))) == decode(text)


@settings(deadline=None)
@given(lines=LINES, end=st.sampled_from([b"\n", b"\r", b"\r\n"]))
def test_events_are_those_of_the_standards_prose(lines: list[bytes], end: bytes) -> None:
    assert decode(b"".join(line + end for line in lines)) == naive(lines)


def naive(lines: list[bytes]) -> list[bytes]:
    """Read whole lines as the standard's prose has it."""
    events: list[bytes] = []
    data: list[bytes] = []
    for line in [*lines, b""]:
        if line:
            name, colon, value = line.partition(b":")
            if name == b"data":
                data.append(value[1:] if colon and value[:1] == b" " else value)
        elif data:
            events.append(b"\n".join(data))
            data = []
    return events
