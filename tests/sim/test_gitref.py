from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from baseline_samples import SPARK, TEST, WORK, file_with, record_at
from git_command import git

from pytest_sparkperf.adapters.baseline_text import baseline_text
from pytest_sparkperf.adapters.command import Answer
from pytest_sparkperf.adapters.gitref import GitFiles
from pytest_sparkperf.adapters.store import FolderStore, baseline_path
from pytest_sparkperf.cli import main
from pytest_sparkperf.core.claim import margin
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.judge import Terms, decide
from pytest_sparkperf.core.lookup import Found, GateIdentity
from pytest_sparkperf.core.summary import summarize
from pytest_sparkperf.experiment.baselines import load_baseline, open_files

FOLDER = ".sparkperf/baselines"
PATH = baseline_path(SPARK, TEST)
NOW = datetime(2026, 12, 1, tzinfo=UTC)
GATE = GateIdentity(TEST, SPARK, WORK, ("decode_tok_s",))


def keep(root: Path, data: bytes) -> Path:
    path = root / FOLDER / PATH
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository whose branch main holds three records of 100 tok/s, on a branch of a change."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q")
    keep(root, baseline_text(file_with(*(record_at(day, 100.0) for day in (1, 2, 3)))))
    git(root, "add", "-A")
    git(root, "commit", "-qm", "Record a baseline")
    git(root, "checkout", "-qb", "change")
    return root


def test_a_change_that_edits_its_baseline_and_is_slower_still_fails_against_the_ref(repository: Path) -> None:
    edited = keep(repository, baseline_text(file_with(*(record_at(day, 50.0) for day in (1, 2, 3)))))
    git(repository, "commit", "-qam", "Make it slower")

    assert outcome_at_50_tok_s(repository, None) == "PASS", "by its own baseline it is as fast as ever"
    assert outcome_at_50_tok_s(repository, "main") == "FAIL"
    edited.unlink()
    assert outcome_at_50_tok_s(repository, "main") == "FAIL"


def outcome_at_50_tok_s(root: Path, ref: str | None) -> str:
    found = load_baseline(open_files(root / FOLDER, ref, root), GATE, NOW)
    assert isinstance(found, Found)
    today = summarize([[math.log(50.0)] * 4] * 6, (0, 1, 2, 3))
    terms = Terms(baseline=found.baselines["decode_tok_s"])
    return decide(today, margin("decode_tok_s", 0.06, paired=False), terms).outcome


def test_files_of_a_ref_are_listed_and_those_it_lacks_are_none(repository: Path) -> None:
    keep(repository, b"not committed")

    files = GitFiles("main", repository / FOLDER, repository)

    assert files.paths() == [PATH]
    assert files.where == "main:.sparkperf/baselines"
    assert files.commit == git(repository, "rev-parse", "main")
    assert files.read("other/x.yaml") is None
    assert GitFiles("main", repository / "elsewhere", repository).paths() == []


def test_a_folder_below_the_root_of_the_repository_is_found(repository: Path) -> None:
    below = repository / "below"
    keep(below, baseline_text(file_with(record_at(1))))
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "Record below")

    files = GitFiles("HEAD", below / FOLDER, below)

    assert files.paths() == [PATH]
    assert files.read(PATH) == baseline_text(file_with(record_at(1)))


def test_a_huge_file_of_a_ref_is_refused_without_being_read(repository: Path) -> None:
    keep(repository, b"#" * 400_000)
    git(repository, "commit", "-qam", "Blow it up")

    data = GitFiles("HEAD", repository / FOLDER, repository).read(PATH)

    assert data is not None
    assert len(data) == 256 * 1024 + 1


@pytest.mark.parametrize(
    ("ref", "error"),
    [
        (
            "origin/main",
            "there is no git ref 'origin/main' in this repository; fetch it first, or name another",
        ),
        ("--output=x", "'--output=x' is not a git ref; give a branch, tag or commit, such as origin/main"),
        ("", "'' is not a git ref; give a branch, tag or commit, such as origin/main"),
    ],
)
def test_a_ref_that_cannot_be_had_is_an_error(repository: Path, ref: str, error: str) -> None:
    with pytest.raises(ConfigError) as raised:
        GitFiles(ref, repository / FOLDER, repository)

    assert str(raised.value) == error


@pytest.mark.parametrize(
    ("ref", "fetch"),
    [
        ("origin/main", "git fetch --depth=1 origin main:refs/remotes/origin/main"),
        ("v1", "git fetch --depth=1 origin v1"),
    ],
)
def test_a_shallow_clone_says_what_to_fetch_and_that_helps(
    repository: Path, tmp_path: Path, ref: str, fetch: str
) -> None:
    git(repository, "tag", "v1", "main")
    git(repository, "commit", "-q", "--allow-empty", "-m", "More")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth=1", "--branch=change", f"file://{repository}", str(clone))

    with pytest.raises(ConfigError) as raised:
        GitFiles(ref, clone / FOLDER, clone)

    assert str(raised.value) == (
        f"this clone is shallow and does not have the git ref {ref!r}; fetch it first: {fetch} (in GitHub "
        "Actions: actions/checkout with fetch-depth: 0)"
    )
    git(clone, *fetch.split()[1:])
    wanted = ref if "/" in ref else "FETCH_HEAD"
    assert GitFiles(wanted, clone / FOLDER, clone).paths() == [PATH]


def test_a_folder_that_is_no_repository_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    with pytest.raises(ConfigError) as raised:
        GitFiles("main", tmp_path / FOLDER, tmp_path)

    assert str(raised.value) == (
        "the git ref 'main' cannot be read: fatal: not a git repository (or any of the parent directories): "
        ".git"
    )


def test_a_machine_without_git_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConfigError) as raised:
        GitFiles("main", tmp_path / FOLDER, tmp_path)

    assert str(raised.value) == (
        "the git ref 'main' cannot be read: there is no program 'git' on PATH; install git, or leave out "
        "the ref"
    )


def test_a_folder_outside_the_root_is_in_no_ref(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        GitFiles("main", tmp_path / "elsewhere", repository)

    assert str(raised.value) == (
        f"'{tmp_path / 'elsewhere'}' is outside '{repository}', so no git ref of that repository holds it"
    )


def test_the_working_tree_is_read_without_a_ref(repository: Path) -> None:
    files = open_files(repository / FOLDER, None, repository)

    assert isinstance(files, FolderStore)
    assert files.paths() == [PATH]


def test_the_command_diff_shows_what_a_change_did_to_its_baseline(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repository)
    assert main(["baseline", "diff", "--ref", "main"]) == 0
    assert capsys.readouterr().out == "no baseline differs from main\n"
    keep(repository, baseline_text(file_with(record_at(1, 100.0), record_at(2, 100.0), record_at(3, 50.0))))

    status = main(["baseline", "diff", "--ref", "main"])

    assert status == 1
    assert capsys.readouterr().out.splitlines()[2:] == [
        (
            "    ~ 2026-11-03T10:00:00Z, decode_tok_s 100.0 tok/s, 12 rounds, 61 C, anchor -> "
            "2026-11-03T10:00:00Z, decode_tok_s 50.00 tok/s, 12 rounds, 61 C, anchor"
        ),
        "    mean speed by decode_tok_s: -23.1%",
    ]
    assert main(["baseline", "list", "--ref", "main"]) == 0


def test_a_git_that_fails_is_an_error_and_no_missing_file(repository: Path) -> None:
    commit = git(repository, "rev-parse", "main")

    def hangs(arguments: Sequence[str], timeout_s: float) -> Answer:
        if "rev-parse" in arguments:
            return Answer(0, commit.encode())
        return Answer(None, problem=f"git gave no answer within {timeout_s:g} s")

    files = GitFiles("main", repository / FOLDER, repository, run=hangs)

    with pytest.raises(ConfigError) as raised:
        files.read(PATH)
    assert str(raised.value) == f"git cannot show {PATH!r} of 'main': git gave no answer within 30 s"
    with pytest.raises(ConfigError) as raised:
        files.paths()
    assert (
        str(raised.value)
        == "git cannot list '.sparkperf/baselines' of 'main': git gave no answer within 30 s"
    )


def test_a_file_that_only_the_working_tree_has_is_none_in_the_ref(repository: Path) -> None:
    keep(repository, b"").with_name("new.yaml").write_text("")

    assert GitFiles("main", repository / FOLDER, repository).read(f"{SPARK.slug}/new.yaml") is None
