from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from baseline_samples import EMPTY_FILE, SLUG, SPARK, TEST, WORK, file_with, record_at

from pytest_sparkperf.adapters.baseline_text import baseline_text
from pytest_sparkperf.adapters.store import FolderStore, baseline_path
from pytest_sparkperf.cli import main
from pytest_sparkperf.core.baseline import append_record
from pytest_sparkperf.core.baseline_schema import to_document

DATA = Path(__file__).parents[1] / "data" / "baselines"
PATH = baseline_path(SPARK, TEST)
FILE = file_with(record_at(1, 104.6), record_at(2, 104.0))
Sparkperf = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder that holds one file."""
    (tmp_path / PATH).parent.mkdir()
    (tmp_path / PATH).write_bytes(baseline_text(FILE))
    return tmp_path


@pytest.fixture
def sparkperf(capsys: pytest.CaptureFixture[str]) -> Sparkperf:
    """Return a function that runs the console script and gives its status and what it printed."""

    def run(*words: object) -> tuple[int, str, str]:
        status = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_what_is_kept_is_listed_by_machine(sparkperf: Sparkperf, folder: Path) -> None:
    assert sparkperf("baseline", "list", "--dir", folder) == (
        0,
        (
            f"{SLUG}\n"
            "  tests/test_speed.py::test_decode[k3]\n"
            "    acme/m-35b k=3 mtp, workload 0123456789abcdef: 2 records, newest 2026-11-02T10:00:00Z; "
            "decode_tok_s 104.0 tok/s\n"
        ),
        "",
    )


def test_files_are_printed_as_json(sparkperf: Sparkperf, folder: Path) -> None:
    for command in (["list"], ["show", "test_decode"]):
        status, out, _ = sparkperf("baseline", *command, "--json", "--dir", folder)

        assert (status, json.loads(out)) == (0, {PATH: to_document(FILE)})


def test_a_test_is_shown_by_part_of_its_name(sparkperf: Sparkperf, folder: Path) -> None:
    status, out, err = sparkperf("baseline", "show", "test_decode", "--dir", folder)

    assert (status, err) == (0, "")
    assert out.splitlines()[0] == f"{TEST} on {SLUG}"
    assert out.splitlines()[-1] == "    vllm: 0.24.0"


def test_a_test_that_is_not_kept_is_wrong_usage(sparkperf: Sparkperf, folder: Path) -> None:
    assert sparkperf("baseline", "show", "test_x", "--dir", folder) == (
        2,
        "",
        "sparkperf baseline: no baseline is of a test like 'test_x'; `sparkperf baseline list` lists them\n",
    )


def test_a_corrupt_file_is_a_finding_and_hides_no_other(sparkperf: Sparkperf, folder: Path) -> None:
    (folder / SLUG / "broken.yaml").write_text("- 1\n")

    status, out, err = sparkperf("baseline", "list", "--dir", folder)

    assert (status, TEST in out) == (1, True)
    assert err == (
        f"{folder}/{SLUG}/broken.yaml:1: [1] is not a baseline; remove the file, or take it from git again\n"
    )


def test_an_empty_folder_holds_nothing(sparkperf: Sparkperf, tmp_path: Path) -> None:
    assert sparkperf("baseline", "list", "--dir", tmp_path) == (0, f"no baselines in {tmp_path}\n", "")


def test_pruning_says_what_it_would_remove_before_it_does(sparkperf: Sparkperf, folder: Path) -> None:
    old = replace(WORK, k=0, speculator=None)
    (folder / PATH).write_bytes(baseline_text(append_record(FILE, EMPTY_FILE, old, record_at(1))))
    line = f"{TEST} on {SLUG}: acme/m-35b k=%s, workload 0123456789abcdef\n"
    both = ["remove " + line % 0, "remove " + line % "3 mtp"]

    assert sparkperf("baseline", "prune", "test_decode", "--dir", folder) == (
        0,
        "".join(f"would {one}" for one in both) + "nothing was removed; say --yes to remove these\n",
        "",
    )
    assert FolderStore(folder).paths() == [PATH]
    status, out, _ = sparkperf("baseline", "prune", "test_decode", "--yes", "--dir", folder)
    assert (status, out) == (0, "".join(one.replace("remove ", "removed ", 1) for one in both))
    assert FolderStore(folder).paths() == []


@pytest.mark.parametrize(
    "words", [["--hardware", "other"], ["--imported"], ["--older-than", "100000"], ["no_such_test"]]
)
def test_pruning_leaves_what_was_not_named(sparkperf: Sparkperf, folder: Path, words: list[str]) -> None:
    assert sparkperf("baseline", "prune", *words, "--yes", "--dir", folder) == (0, "nothing to remove\n", "")


def test_pruning_needs_to_know_what(sparkperf: Sparkperf, folder: Path) -> None:
    assert sparkperf("baseline", "prune", "--yes", "--dir", folder) == (
        2,
        "",
        "sparkperf baseline: say what to remove: a test, --hardware, --older-than or --imported\n",
    )


def test_pruning_imported_figures_keeps_our_own(sparkperf: Sparkperf, folder: Path) -> None:
    imported = append_record(FILE, EMPTY_FILE, replace(WORK, source="llama-benchy"), record_at(1))
    (folder / PATH).write_bytes(baseline_text(imported))

    sparkperf("baseline", "prune", "--imported", "--yes", "--dir", folder)

    assert (folder / PATH).read_bytes() == baseline_text(FILE)


def test_a_result_of_another_tool_is_kept_apart(sparkperf: Sparkperf, tmp_path: Path) -> None:
    words = ("--test", "burst", "--gpu", "NVIDIA H200", "--memory-gib", "141", "--dir", tmp_path)

    status, out, err = sparkperf("baseline", "import", DATA / "vllm_bench_k3.json", *words)

    assert (status, err) == (0, "")
    assert out == (
        "imported into burst on h200-1x-141g-declared-e909: tiny k=3, workload 64 prompts of about 214 "
        "tokens, 256 out, concurrency 8, rate inf, openai-chat, imported from vllm bench serve\n"
        "imported figures are shown and never judged against\n"
    )
    assert FolderStore(tmp_path).paths() == ["h200-1x-141g-declared-e909/burst.yaml"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--gpu", "x", "--count", "0"], "--count and --memory-gib take numbers above 0"),
        (["--gpu", "x", "--memory-gib", "nan"], "--count and --memory-gib take numbers above 0"),
    ],
)
def test_an_import_needs_a_possible_machine(
    sparkperf: Sparkperf, tmp_path: Path, words: list[str], error: str
) -> None:
    status, out, err = sparkperf(
        "baseline", "import", DATA / "vllm_bench_k3.json", "--test", "t", *words, "--dir", tmp_path
    )

    assert (status, out, err) == (2, "", f"sparkperf baseline: {error}\n")


def test_a_file_that_is_not_there_is_wrong_usage(sparkperf: Sparkperf, tmp_path: Path) -> None:
    missing = tmp_path / "a.json"

    assert sparkperf("compare", missing, missing) == (
        2,
        "",
        f"sparkperf compare: {missing}: cannot be read: no such file or directory; name a readable file\n",
    )
    missing.write_bytes(b"\xff")
    assert sparkperf("compare", missing, missing) == (
        2,
        "",
        f"sparkperf compare: {missing}: is not UTF-8; give the file as the tool wrote it\n",
    )
    with missing.open("wb") as stream:
        stream.truncate(300 * 1024**2)
    assert sparkperf("compare", missing, missing) == (
        2,
        "",
        (
            f"sparkperf compare: {missing}: is larger than 256 MiB; give a result without the details of "
            "each request\n"
        ),
    )


def test_results_are_compared(sparkperf: Sparkperf) -> None:
    one, other = DATA / "vllm_bench_off.json", DATA / "vllm_bench_k3.json"

    status, out, err = sparkperf("compare", one, other)

    assert (status, err) == (1, "")
    assert out.splitlines()[1] == "  not the same work: k unknown in A, 3 in B"
    assert sparkperf("compare", one, one)[0] == 0


def test_wrong_words_are_wrong_usage(sparkperf: Sparkperf) -> None:
    for words in (
        ["baseline"],
        ["baseline", "strap"],
        ["baseline", "list", "--wrong"],
        ["compare", "a.json"],
    ):
        with pytest.raises(SystemExit) as raised:
            sparkperf(*words)
        assert raised.value.code == 2
