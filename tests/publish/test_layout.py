"""The file that is written piece by piece, as the safetensors library reads it."""

from __future__ import annotations

import errno
import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file

from airflow_ett.errors import PublishError
from airflow_ett.publish import layout
from airflow_ett.publish.layout import Tensor, WeightsFile, pieces
from tests.publish.sharded import grid, numbered

pytestmark = pytest.mark.torch


def test_the_library_reads_every_dtype_it_knows(tmp_path: Path) -> None:
    tensors = {
        str(dtype)[6:]: torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype) for dtype in layout._DTYPES
    }
    with WeightsFile(
        tmp_path / "file", {name: Tensor(t.dtype, tuple(t.shape)) for name, t in tensors.items()}
    ) as file:
        for name, tensor in reversed(tensors.items()):
            file.put(name, tensor, (0, 0))
    read = load_file(tmp_path / "file")
    assert sorted(read) == sorted(tensors)
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype
        same = read[name].view(torch.uint8) == tensor.view(torch.uint8)
        assert bool(same.all()), name


def test_single_values_and_empty_tensors_are_kept(tmp_path: Path) -> None:
    shapes: dict[str, tuple[int, ...]] = {
        "single": (),
        "none": (0,),
        "no_rows": (0, 4),
        "one": (1,),
    }
    with WeightsFile(
        tmp_path / "file", {name: Tensor(torch.float32, shape) for name, shape in shapes.items()}
    ) as file:
        file.put("single", torch.tensor(3.5), ())
        file.put("one", torch.tensor([2.5]), (0,))
    read = load_file(tmp_path / "file")
    assert {name: tuple(tensor.shape) for name, tensor in read.items()} == shapes
    assert (read["single"].item(), read["one"].item()) == (3.5, 2.5)


def test_each_tensor_lies_aligned_for_its_dtype_and_the_format_is_named(tmp_path: Path) -> None:
    tensors = {
        "a": Tensor(torch.int8, (3,)),
        "b": Tensor(torch.float64, (1,)),
        "ünïcode": Tensor(torch.float16, (5,)),
    }
    WeightsFile(tmp_path / "file", tensors).__exit__()
    content = (tmp_path / "file").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert length % 8 == 0
    for name, tensor in tensors.items():
        assert header[name]["data_offsets"][0] % tensor.dtype.itemsize == 0
    with safe_open(tmp_path / "file", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_an_unknown_dtype_is_named(tmp_path: Path) -> None:
    with pytest.raises(PublishError, match=r"w is of torch\.complex128, which safetensors"):
        WeightsFile(tmp_path / "file", {"w": Tensor(torch.complex128, (1,))})
    assert not (tmp_path / "file").exists()


@pytest.fixture
def no_room() -> Iterator[None]:
    """No file may become greater than a few KiB."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_want_of_room_is_told_before_anything_is_written(tmp_path: Path, no_room: None) -> None:
    message = r"File too large \(\d+ bytes are needed\): '.*file'"
    with pytest.raises(OSError, match=message) as caught:
        WeightsFile(tmp_path / "file", {"w": Tensor(torch.float32, (8192,))})
    assert caught.value.errno == errno.EFBIG
    assert (tmp_path / "file").stat().st_size == 0


@st.composite
def cut_tensors(draw: st.DrawFn) -> tuple[tuple[int, ...], list[list[int]], int]:
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    cuts = [
        draw(st.lists(st.integers(1, size - 1), unique=True)) if size > 1 else [] for size in shape
    ]
    return shape, cuts, draw(st.sampled_from([4, 16, 64, 1 << 20]))


@given(cut_tensors())
def test_any_grid_of_chunks_in_any_slabs_makes_the_tensor(
    tmp_path_factory: pytest.TempPathFactory, drawn: Any
) -> None:
    shape, cuts, slab = drawn
    path = tmp_path_factory.getbasetemp() / "grid"
    tensor = numbered(shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "SLAB", slab)
        with WeightsFile(path, {"w": Tensor(tensor.dtype, shape)}) as file:
            for offsets, sizes in reversed(grid(shape, cuts)):
                chunk = tensor[tuple(slice(o, o + s) for o, s in zip(offsets, sizes, strict=True))]
                for piece, at in pieces(chunk, offsets, shape):
                    assert piece.nbytes <= slab
                    file.put("w", piece, at)
    assert torch.equal(load_file(path)["w"], tensor)
