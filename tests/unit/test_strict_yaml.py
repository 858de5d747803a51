"""Strict YAML: plain words as people read them, lines of every key, and texts that are refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_sparkperf.adapters.strict_yaml import MAX_VALUES, YamlError, load_yaml


def value_of(text: str) -> Any:
    document = load_yaml(text.encode())
    assert document.faults == []
    return document.value


def faults_of(text: str) -> list[tuple[int, str]]:
    return load_yaml(text.encode()).faults


def refused(data: bytes) -> tuple[int, str]:
    with pytest.raises(YamlError) as caught:
        load_yaml(data)
    return caught.value.line, caught.value.text


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("off", "off"),
        ("on", "on"),
        ("yes", "yes"),
        ("No", "No"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("TRUE", True),
        ("2e-2", 0.02),
        ("1e3", 1000.0),
        ("1.5E+3", 1500.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("-0.0", -0.0),
        ("0.35", 0.35),
        ("-.inf", -math.inf),
        ("012", "012"),
        ("007.5", "007.5"),
        ("0", 0),
        ("-3", -3),
        ("+3", 3),
        ("0o17", 15),
        ("0x1F", 31),
        ("1:30", "1:30"),
        ("4_294", "4_294"),
        ("2026-05-01", "2026-05-01"),
        ("2026-05-01 10:00:00", "2026-05-01 10:00:00"),
        ("1.2.3", "1.2.3"),
        ("sm_121a", "sm_121a"),
        ("~", None),
        ("null", None),
        ("", None),
        ("=", "="),
        ('"true"', "true"),
        ("'3'", "3"),
        ("!!str 3", "3"),
        ("!!float 3", 3.0),
        ("expandable_segments:True", "expandable_segments:True"),
    ],
)
def test_a_plain_word_is_what_people_read(word: str, value: Any) -> None:
    found = value_of(f"x: {word}")["x"]

    assert found == value
    assert type(found) is type(value)


def test_not_a_number_is_a_float() -> None:
    assert math.isnan(value_of("x: .nan")["x"])


def test_keys_are_read_like_values() -> None:
    assert value_of('{0: a, on: b, "3": c, ~: d}') == {0: "a", "on": "b", "3": "c", None: "d"}


def test_block_and_folded_texts_are_kept() -> None:
    assert value_of("a: |\n  one\n  two\nb: >-\n  one\n  two\n") == {"a": "one\ntwo\n", "b": "one two"}


def test_a_byte_order_mark_and_windows_line_ends_are_fine() -> None:
    assert load_yaml(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n").value == {"a": 1, "b": 2}


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "\n\n"])
def test_nothing_is_none(text: str) -> None:
    assert value_of(text) is None


def test_every_place_has_its_line() -> None:
    document = load_yaml(b"a:\n  b: 1\n  c:\n    - x\n    - {d: 2,\n       e: 3}\n")

    assert {
        path: document.lines[path] for path in [(), ("a",), ("a", "b"), ("a", "c", 0), ("a", "c", 1, "e")]
    } == {
        (): 1,
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c", 0): 4,
        ("a", "c", 1, "e"): 6,
    }


def test_aliases_and_merge_keys_work_and_own_keys_win() -> None:
    text = (
        "base: &base {a: 1, b: 1}\nother: &other {b: 2, c: 2}\nx: {b: 3, <<: [*base, "
        "*other]}\ny: {<<: *base}\nz: *base\n"
    )
    value = value_of(text)

    assert value["x"] == {"a": 1, "b": 3, "c": 2}
    assert value["y"] == value["z"] == {"a": 1, "b": 1}


def test_a_merged_key_has_the_line_where_it_is_written() -> None:
    document = load_yaml(b"base: &base\n  a: 1\n  b: 1\nx:\n  b: 2\n  <<: *base\n")

    assert (document.lines["x", "a"], document.lines["x", "b"]) == (2, 5)


def test_a_key_given_twice_is_a_fault_and_the_first_stands() -> None:
    document = load_yaml(b"a:\n  k: 1\n  b: 2\n  k: 3\na: 4\n")

    assert document.faults == [
        (4, "a.k: is given twice, first in line 2; keep one"),
        (5, "a: is given twice, first in line 1; keep one"),
    ]
    assert document.value == {"a": {"k": 1, "b": 2}}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "a:\n  b: !!python/object/apply:os.system [ls]\n",
            (
                2,
                (
                    "a.b: has the tag !!python/object/apply:os.system, which is not allowed; "
                    "write the value without a tag"
                ),
            ),
        ),
        ("a: !env HOME\n", (1, "a: has the tag !env, which is not allowed; write the value without a tag")),
        (
            "a: !!int three\n",
            (1, "a: has the tag !!int, which is not allowed; write the value without a tag"),
        ),
        ("a: !!set {b}\n", (1, "a: has the tag !!set, which is not allowed; write the value without a tag")),
        ("a: 1\n? [b]\n: 2\n", (2, "has a key that is a list or a mapping; keys are words")),
        ("a:\n  <<: 3\n", (2, "a: << takes a mapping or a list of mappings, as in <<: *base")),
    ],
)
def test_what_is_wrong_in_one_place_does_not_stop_the_rest(text: str, fault: tuple[int, str]) -> None:
    assert faults_of(text) == [fault]


@pytest.mark.parametrize(
    ("data", "line", "text"),
    [
        (b"a:\n\tb: 1\n", 2, "holds a tab where YAML takes blanks only; put blanks there"),
        (b"a: 1\n\tb: 1\n", 2, "holds a tab where YAML takes blanks only; put blanks there"),
        (b"a: 1\n---\nb: 2\n", 2, "starts a second document; keep one, without a further ---"),
        (b"a: caf\xe9\n", 1, "is not UTF-8 (byte 0xe9); save the file as UTF-8"),
        (b"a: 1\nb: \xff\n", 2, "is not UTF-8 (byte 0xff); save the file as UTF-8"),
        (b"a: 1\nb: \x07\n", 2, "the character '\\x07' is not allowed; delete it"),
        (b"a: *there\n", 1, "undefined alias 'there'; define it by & above this line"),
        (b"a: 1\nb: c: d\n", 2, "is not valid YAML: mapping values are not allowed here"),
        (
            b"a: {b: 1,\nc: 2\nd: 3\n",
            3,
            (
                "is not valid YAML: expected ',' or '}', but got ':' while parsing a flow "
                "mapping, which begins in line 1"
            ),
        ),
        (
            b'a: 1\nb: "open\nc: 2\n',
            3,
            (
                "is not valid YAML: found unexpected end of stream while scanning a quoted scalar, "
                "which begins in line 2"
            ),
        ),
        (b"a: &x {b: *x}\n", 1, "holds an alias of itself; write the values out"),
        (b"a: &x\n  <<: *x\n", 1, "holds an alias of itself; write the values out"),
        (b"a: " + b"[" * 30 + b"]" * 30, 1, "is nested more than 20 levels deep"),
        (b"a: " + b"[" * 5000, 1, "is nested more than 20 levels deep"),
    ],
)
def test_a_text_that_cannot_be_understood_names_the_line(data: bytes, line: int, text: str) -> None:
    assert refused(data) == (line, text)


def test_aliases_cannot_blow_the_file_up() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]

    line, text = refused("\n".join(lines).encode())

    assert text == f"holds more than {MAX_VALUES} values once aliases are followed"
    assert line <= len(lines)
