from __future__ import annotations

import os
import random
import resource
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from baseline_samples import EMPTY_FILE, SPARK, TEST, WORK, file_with, record_at
from filelock import FileLock

import pytest_sparkperf
from pytest_sparkperf.adapters.baseline_text import MAX_BYTES, CorruptBaselineError, baseline_text
from pytest_sparkperf.adapters.store import FolderStore, baseline_path, load_file, read_bounded, write_whole
from pytest_sparkperf.core.baseline import BaselineFile, Record, append_record
from pytest_sparkperf.core.errors import ConfigError

TESTS = Path(__file__).parents[1]
WRITER = TESTS / "data" / "baselines" / "store_writer.py"
PATH = baseline_path(SPARK, TEST)
Start = Callable[[Path, str, int], subprocess.Popen[bytes]]
Change = Callable[[BaselineFile | None], BaselineFile]


def adding(record: Record) -> Change:
    return lambda before: append_record(before, EMPTY_FILE, WORK, record)


@pytest.fixture
def start_writer() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []
    root = Path(pytest_sparkperf.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(TESTS)])}

    def start(folder: Path, name: str, runs: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(WRITER), str(folder), name, str(runs)]
        started.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def wait_until_ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"


@pytest.mark.slow
def test_writers_at_once_lose_and_double_nothing_that_is_kept(tmp_path: Path, start_writer: Start) -> None:
    writers, runs = 8, 50
    processes = [start_writer(tmp_path, f"w{n}", runs) for n in range(writers)]
    store = FolderStore(tmp_path)
    reads = 0
    while any(process.poll() is None for process in processes):
        file = load_file(store, PATH)  # a half file would not parse
        reads += file is not None
    assert [process.returncode for process in processes] == [0] * writers
    assert reads > 0

    file = load_file(store, PATH)

    assert file is not None
    (series,) = file.series
    offered = sorted((second, f"w{writer}-{second}") for writer in range(writers) for second in range(runs))
    assert [record.run for record in series.recent] == [run for _, run in offered[-10:]]
    assert len(series.anchors) == 5
    kept = [record.run for record in series.records]
    assert len(set(kept)) == len(kept) == len({*kept[-10:], *(record.run for record in series.anchors)})


@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_a_writer_killed_at_any_moment_leaves_a_whole_file(
    tmp_path: Path, start_writer: Start, kills: int
) -> None:
    store = FolderStore(tmp_path)
    chance = random.Random(kills)
    for number in range(kills):
        process = start_writer(tmp_path, f"k{number}", 0)
        wait_until_ready(process)
        deadline = time.monotonic() + chance.uniform(0, 0.15)
        while time.monotonic() < deadline:
            load_file(store, PATH)
        process.kill()
        process.wait()
        load_file(store, PATH)

    after = store.update(PATH, adding(replace(record_at(1), run="last", recorded_at="2026-11-02T10:00:00Z")))

    assert after.series[0].newest.run == "last", "the lock of a dead writer holds nobody up"
    names = sorted(path.name for path in (tmp_path / SPARK.slug).iterdir())
    assert names == [Path(PATH).name], "what killed writers left is tidied away"


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    before = store.update(PATH, adding(record_at(1)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, limits[1]))
    try:
        with pytest.raises(ConfigError) as raised:
            store.update(PATH, adding(record_at(2)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert str(raised.value) == (
        f"the baseline {tmp_path / PATH} cannot be written: file too large; nothing was changed; make room "
        "and the folder writable, or name another by --sparkperf-baseline-dir"
    )
    assert load_file(store, PATH) == before
    assert [path.name for path in (tmp_path / SPARK.slug).iterdir()] == [Path(PATH).name]


def test_a_folder_that_cannot_be_written_can_be_read(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    store = FolderStore(blocker / "baselines")

    with pytest.raises(ConfigError) as raised:
        store.update(PATH, adding(record_at(1)))

    assert str(raised.value) == (
        f"the baseline {blocker / 'baselines' / PATH} cannot be written: not a directory; nothing was "
        "changed; make room and the folder writable, or name another by --sparkperf-baseline-dir"
    )
    assert load_file(store, PATH) is None
    assert store.paths() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_read_and_not_written(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    before = store.update(PATH, adding(record_at(1)))
    folder = (tmp_path / PATH).parent
    folder.chmod(0o500)
    try:
        with pytest.raises(ConfigError) as raised:
            store.update(PATH, adding(record_at(2)))
    finally:
        folder.chmod(0o700)

    assert "permission denied" in str(raised.value)
    assert load_file(store, PATH) == before


def test_a_lock_that_is_held_for_too_long_is_an_error(tmp_path: Path) -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with FileLock(tmp_path / ".lock"):
            held.set()
            done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60)
    try:
        with pytest.raises(ConfigError) as raised:
            FolderStore(tmp_path, lock_timeout_s=0.1).update(PATH, adding(record_at(1)))
    finally:
        done.set()
        holder.join()

    assert str(raised.value) == (
        f"the baselines in {tmp_path} are locked by another process for more than 0.1 s; wait for it, or end "
        "it"
    )


def test_a_corrupt_file_is_never_replaced_by_recording(tmp_path: Path) -> None:
    path = tmp_path / PATH
    path.parent.mkdir(parents=True)
    path.write_text("schema_version: 1\ntest: [\n")

    with pytest.raises(CorruptBaselineError):
        FolderStore(tmp_path).update(PATH, adding(record_at(1)))

    assert path.read_text() == "schema_version: 1\ntest: [\n"


def test_a_file_is_readable_for_others_and_git_ignores_the_lock(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        FolderStore(tmp_path).update(PATH, adding(record_at(1)))
    finally:
        os.umask(mask)

    assert stat.S_IMODE((tmp_path / PATH).stat().st_mode) == 0o644
    assert (tmp_path / ".gitignore").read_text() == ".lock\n*.tmp\n"
    assert (tmp_path / PATH).read_bytes() == baseline_text(file_with(record_at(1)))


def test_recording_the_same_run_again_writes_nothing(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.update(PATH, adding(record_at(1)))
    before = (tmp_path / PATH).stat()

    store.update(PATH, adding(record_at(1, 50.0)))

    assert (tmp_path / PATH).stat().st_ino == before.st_ino


def test_removing_the_last_file_removes_its_folder(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.update(PATH, adding(record_at(1)))

    store.remove(PATH)
    store.remove(PATH)

    assert store.paths() == []
    assert not (tmp_path / SPARK.slug).exists()


def test_a_pipe_in_place_of_a_file_does_not_hang_reading(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.yaml")

    with pytest.raises(ConfigError) as raised:
        read_bounded(tmp_path / "x.yaml")

    assert str(raised.value) == f"{tmp_path / 'x.yaml'}: is not a plain file; remove it"


def test_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.yaml")

    with pytest.raises(OSError, match="Not a plain file"):
        write_whole(tmp_path / "x.yaml", b"text")

    assert (tmp_path / "x.yaml").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["x.yaml"]


def test_reading_stops_behind_what_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    with path.open("wb") as stream:
        stream.truncate(10 * 1024**3)  # sparse

    data = read_bounded(path)

    assert data is not None
    assert len(data) == MAX_BYTES + 1


def test_a_write_that_fails_leaves_no_temporary_file(tmp_path: Path) -> None:
    target = tmp_path / "x.yaml"
    target.mkdir()
    (target / "within").write_text("")

    with pytest.raises(OSError, match="directory"):
        write_whole(target, b"text")

    assert [path.name for path in tmp_path.iterdir()] == ["x.yaml"]
