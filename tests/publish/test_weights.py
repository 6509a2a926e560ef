"""A checkpoint's chunks become one file: whole, in whatever way the ranks had cut the tensors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file

from airflow_ett.checkpoints import open_checkpoint
from airflow_ett.errors import PublishError
from airflow_ett.publish.weights import write_weights
from tests.forked import run_ranks
from tests.publish.reading import model_weights
from tests.publish.sharded import committed, grid, numbered, save_sharded
from tests.s3 import new_bucket

pytestmark = pytest.mark.torch


def test_rows_columns_and_both_are_put_together(tmp_path: Path) -> None:
    tensors = {
        "rows": numbered((7, 3)),
        "columns": numbered((5, 6)),
        "mesh": numbered((4, 6, 5), torch.float64),
        "whole": numbered((3,), torch.int64),
        "single": torch.tensor(2.5),
        "empty": torch.empty(0, 4),
        "mask": torch.tensor([True, False]),
    }
    chunks = {
        "rows": [*grid((7, 3), [[2], []]), ((7, 0), (0, 3))],  # a rank without rows
        "columns": grid((5, 6), [[], [1, 4]]),
        "mesh": grid((4, 6, 5), [[2], [3], [1, 2]]),
    }
    source = save_sharded(tmp_path / "checkpoint", tensors, chunks)
    assert write_weights(source, tmp_path / "w", cast=None) == 21 + 30 + 120 + 3 + 1 + 0 + 2
    read = load_file(tmp_path / "w")
    assert sorted(read) == sorted(tensors)
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor), name


def test_what_torch_itself_saves_arrives_as_it_is(tmp_path: Path) -> None:
    tied = torch.randn(4, 3)
    model = {
        "turned": torch.randn(5, 4).T,
        "part": torch.randn(9, 9)[2:5, 1:4],
        "mirrored": torch.randn(3, dtype=torch.complex64).conj(),
        "same": tied,
        "tied": tied,
        "0": {"scalar": torch.tensor(7)},
        "list": [torch.ones(2), torch.zeros(1)],
        "cut": torch.randn(3, 2).to(torch.bfloat16),
        "note": "a byte item",
    }
    dcp.save({"model": model, "optimizer": {"m": torch.ones(4)}}, checkpoint_id=tmp_path / "c")
    read = model_weights(committed(tmp_path / "c"))
    names = ["0.scalar", "cut", "list.0", "list.1", "mirrored", "part", "same", "tied", "turned"]
    assert sorted(read) == names
    for name in ("turned", "part", "mirrored", "same", "tied", "cut"):
        assert torch.equal(read[name], model[name]), name
    assert read["list.0"].tolist() == [1.0, 1.0]
    assert read["0.scalar"].item() == 7


def test_what_two_ranks_have_sharded(tmp_path: Path) -> None:
    """One of them holds no row of one tensor."""
    tensors = {"rows": numbered((7, 3)), "columns": numbered((3, 5)), "row": numbered((1, 4))}
    axes = {"rows": 0, "columns": 1, "row": 0}

    def save() -> None:
        import torch.distributed as dist
        from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

        dist.init_process_group("gloo")
        mesh = init_device_mesh("cpu", (2,))
        model = {n: distribute_tensor(t, mesh, [Shard(axes[n])]) for n, t in tensors.items()}
        dcp.save({"model": {**model, "copied": torch.ones(2)}}, checkpoint_id=tmp_path / "c")
        dist.destroy_process_group()

    assert run_ranks(2, save) == [None, None]
    source = committed(tmp_path / "c")
    assert {"__0_0.distcp", "__1_0.distcp"} < source.files.keys()
    read = model_weights(source)
    assert read.pop("copied").tolist() == [1.0, 1.0]
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())


def test_chunks_that_are_read_little_by_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_ett.publish.chunks._AT_ONCE", 100)
    monkeypatch.setattr("airflow_ett.publish.layout.SLAB", 256)
    tensors = {"a": numbered((50, 20)), "b": numbered((20, 50))}
    chunks = {"a": grid((50, 20), [[13], []]), "b": grid((20, 50), [[], [7]])}
    source = save_sharded(tmp_path / "checkpoint", tensors, chunks)
    read = model_weights(source)
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize("cast", ["bfloat16", "float16", "float32"])
def test_a_cast_changes_floating_tensors_alone(tmp_path: Path, cast: str) -> None:
    torch.manual_seed(0)
    tensors = {
        "double": torch.randn(4, 4, dtype=torch.float64),
        "half": torch.randn(3).half(),
        "ids": torch.arange(3),
        "mask": torch.tensor([True]),
    }
    source = save_sharded(tmp_path / "c", tensors, {"double": grid((4, 4), [[1], [3]])})
    read = model_weights(source, cast)
    dtype = getattr(torch, cast)
    for name in ("double", "half"):
        tensors[name] = tensors[name].to(dtype)
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor), name


def nan(tensor: Any, *places: tuple[int, ...]) -> Any:
    for place in places:
        tensor[place] = float("nan")
    return tensor


@pytest.mark.parametrize("cast", [None, "float16", "int8"])
def test_nan_is_counted_over_all_chunks(tmp_path: Path, cast: str | None) -> None:
    bad = nan(numbered((4, 6)), (0, 0), (3, 5))
    bad[1, 1] = float("-inf")
    tensors = {"good": numbered((4,)), "bad": bad, "worse": nan(torch.zeros(3), (1,))}
    source = save_sharded(tmp_path / "c", tensors, {"bad": grid((4, 6), [[2], [2]])})
    message = r"c: 3 of 24 values of bad \(and some of 1 other tensors\) are NaN or infinite"
    with pytest.raises(PublishError, match=message):
        write_weights(source, tmp_path / "w", cast=cast)
    assert not (tmp_path / "w.whole").exists()


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64],
)
def test_nan_is_seen_in_every_dtype(tmp_path: Path, dtype: Any) -> None:
    values = nan(torch.ones(5), (2,)).to(dtype)
    with pytest.raises(PublishError, match="1 of 5 values of w are NaN"):
        write_weights(save_sharded(tmp_path / "c", {"w": values}), tmp_path / "w", cast=None)


def test_what_a_cast_cannot_hold_is_refused(tmp_path: Path) -> None:
    source = save_sharded(tmp_path / "c", {"w": torch.tensor([1.0, 70000.0])})
    with pytest.raises(PublishError, match="1 of 2 values of w are too large for the cast"):
        write_weights(source, tmp_path / "w", cast="float16")
    assert model_weights(source, "bfloat16")["w"].tolist() == [1.0, 70144.0]


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (
            torch.ones(3, 2),
            r"found \(torch\.float32, \(3, 2\)\) instead of \(torch\.float32, \(2, 3",
        ),
        (torch.ones(2, 3).double(), r"found \(torch\.float64"),
        (torch.ones(2, 3).to_sparse(), "found "),
        ({"a": 1}, "no attribute"),
        (re.compile("x"), "Weights only load failed"),
    ],
    ids=["shape", "dtype", "sparse", "no tensor", "a stranger's class"],
)
def test_a_chunk_that_is_not_what_the_metadata_says(
    tmp_path: Path, stored: Any, wanted: str
) -> None:
    source = save_sharded(tmp_path / "c", {"w": torch.ones(2, 3)})
    torch.save(stored, tmp_path / "c" / "__0_0.distcp")
    metadata = (tmp_path / "c" / ".metadata").read_bytes()
    length = source.files["__0_0.distcp"].size
    size = (tmp_path / "c" / "__0_0.distcp").stat().st_size
    old, new = (
        b"K" + bytes([n]) if n < 256 else b"M" + n.to_bytes(2, "little") for n in (length, size)
    )
    (tmp_path / "c" / ".metadata").write_bytes(metadata.replace(old, new))
    with pytest.raises(PublishError, match=rf"__0_0\.distcp: the tensors cannot be read.*{wanted}"):
        write_weights(committed(tmp_path / "c"), tmp_path / "w", cast=None)


def test_a_checkpoint_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small chunk and one that is read little by little, a little ahead."""
    fsspec, core = pytest.importorskip("fsspec"), pytest.importorskip("s3fs.core")
    at_once = 4096
    monkeypatch.setattr("airflow_ett.publish.chunks._AT_ONCE", at_once)
    tensors = {"small": numbered((3, 5)), "great": numbered((300, 50))}
    local = save_sharded(tmp_path / "c", tensors, {"great": grid((300, 50), [[100], [20]])})
    uri = f"{new_bucket(monkeypatch)}/c"
    filesystem, path = fsspec.url_to_fs(uri)
    filesystem.put(f"{local.path}/", f"{path}/", recursive=True)
    asked: list[int] = []
    fetch = core.S3File._fetch_range

    def recorded(file: Any, begin: int, end: int) -> bytes:
        asked.append(end - begin)
        content: bytes = fetch(file, begin, end)
        return content

    monkeypatch.setattr(core.S3File, "_fetch_range", recorded)
    read = model_weights(open_checkpoint(uri))
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())
    assert 2 * at_once >= max(asked) > at_once
