from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_sparkperf.adapters.checkpoint import find_checkpoint, hub_cache, read_faults
from pytest_sparkperf.adapters.preflight import check_model
from pytest_sparkperf.core.checkpoint import expected_size, header_size, shards_of
from pytest_sparkperf.core.errors import ServerError
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import make_variant

LIVE_MODEL = Path(__file__).parents[1] / "live" / "model"


def write_shard(path: Path, size: int = 100, *, cut: int = 0) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    whole = len(header).to_bytes(8, "little") + header + bytes(size)
    path.write_bytes(whole[: len(whole) - cut])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shards = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    index = {"weight_map": {"a": shards[0], "b": shards[1], "c": shards[1]}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in shards:
        write_shard(tmp_path / name)
    return tmp_path


def test_a_whole_checkpoint_has_no_fault(folder: Path) -> None:
    assert read_faults(folder) == []


def test_a_real_model_has_no_fault() -> None:
    assert read_faults(LIVE_MODEL) == []


def test_a_missing_shard_is_named(folder: Path) -> None:
    (folder / "model-00002-of-00002.safetensors").unlink()

    assert read_faults(folder) == ["1 of 2 shards are missing (model-00002-of-00002.safetensors)"]


def test_a_link_to_nothing_is_a_missing_shard(folder: Path) -> None:
    path = folder / "model-00002-of-00002.safetensors"
    path.unlink()
    path.symlink_to(folder / "blob.incomplete")

    assert read_faults(folder) == ["1 of 2 shards are missing (model-00002-of-00002.safetensors)"]


def test_a_shard_cut_short_is_told_by_its_own_header(folder: Path) -> None:
    path = folder / "model-00001-of-00002.safetensors"
    write_shard(path, cut=40)
    size = path.stat().st_size

    assert read_faults(folder) == [f"model-00001-of-00002.safetensors has {size} of {size + 40} bytes"]


def test_a_pointer_in_place_of_a_shard_has_no_header(folder: Path) -> None:
    (folder / "model-00001-of-00002.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")

    assert read_faults(folder) == ["model-00001-of-00002.safetensors has no readable header"]


def test_a_download_that_did_not_end_is_named(folder: Path) -> None:
    (folder / "x.safetensors.incomplete").write_text("")

    assert read_faults(folder) == ["x.safetensors.incomplete is a download that did not end"]


@pytest.mark.parametrize("index", ["", "[]", "{}", '{"weight_map": 1}'])
def test_what_is_no_index_names_no_shards(index: str) -> None:
    assert shards_of(index) == ()


def test_a_header_that_cannot_be_is_none() -> None:
    assert header_size(b"\1") is None
    assert header_size(bytes(8)) is None
    assert header_size(b"\xff" * 8) is None
    assert expected_size(b"[]") is None
    assert expected_size(b"{}") == 10


def test_a_model_is_found_in_its_folder_or_in_the_cache_of_the_hub(tmp_path: Path) -> None:
    snapshot = tmp_path / "hub" / "models--acme--m" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)

    assert find_checkpoint("acme/m", {"HF_HOME": str(tmp_path)}) == snapshot
    assert find_checkpoint("acme/m", {"HF_HUB_CACHE": str(tmp_path / "hub")}) == snapshot
    assert find_checkpoint("acme/other", {"HF_HOME": str(tmp_path)}) is None
    assert find_checkpoint(str(snapshot)) == snapshot
    assert find_checkpoint(str(tmp_path / "no")) is None
    assert hub_cache({}) == Path("~/.cache/huggingface/hub").expanduser()


def test_a_model_that_is_not_whole_is_refused(folder: Path) -> None:
    (folder / "model-00001-of-00002.safetensors").unlink()

    with pytest.raises(ServerError) as caught:
        check_model(make_variant(Target("t", "vllm", model=str(folder)), k=0))

    assert str(caught.value) == (
        f"model {str(folder)!r} is not whole: 1 of 2 shards are missing (model-00001-of-00002.safetensors) "
        f"in {str(folder)!r}; download it again."
    )
