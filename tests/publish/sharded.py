"""Committed checkpoints of any sharding, written as torch's distributed checkpoint writes them."""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from airflow_ett.checkpoints import Checkpoint, commit, open_checkpoint
from airflow_ett.events import AttemptId

JOB = "0123456789abcdef0123"
Rectangle = tuple[tuple[int, ...], tuple[int, ...]]
"""Offsets and sizes."""


def save_sharded(
    folder: Path, tensors: Mapping[str, Any], chunks: Mapping[str, Iterable[Rectangle]] = {}
) -> Checkpoint:
    """Save and commit tensors of a model, each chunk by the next of two ranks.

    What has no ``chunks`` is one.
    """
    folder.mkdir(parents=True)
    entries, places = {}, {}
    shards = [(folder / f"__{rank}_0.distcp").open("wb") for rank in range(2)]
    for name, tensor in tensors.items():
        name, pieces = f"model.{name}", []
        for offsets, sizes in chunks.get(name[6:], [((0,) * tensor.ndim, tuple(tensor.shape))]):
            values = tensor[tuple(slice(o, o + s) for o, s in zip(offsets, sizes, strict=True))]
            shard = shards[len(places) % 2]
            begin = shard.tell()
            torch.save(values.clone(), shard)
            info = _StorageInfo(Path(shard.name).name, begin, shard.tell() - begin)
            places[MetadataIndex(name, offsets)] = info
            pieces.append(ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)))
        properties = TensorProperties(dtype=tensor.dtype)
        entries[name] = TensorStorageMetadata(properties, tensor.shape, pieces)
    for shard in shards:
        shard.close()
    (folder / ".metadata").write_bytes(pickle.dumps(Metadata(entries, storage_data=places)))
    return committed(folder)


def committed(folder: Path) -> Checkpoint:
    """Commit a folder as it is (again)."""
    commit(folder, job=JOB, attempt=AttemptId(1, 0, 0), epoch=1, cursor=640)
    return open_checkpoint(str(folder))


def grid(shape: tuple[int, ...], cuts: Iterable[Iterable[int]]) -> list[Rectangle]:
    """Return the chunks of a tensor that is cut at these places along each of its axes."""
    found: list[Rectangle] = [((), ())]
    for size, places in zip(shape, cuts, strict=True):
        edges = [0, *sorted(places), size]
        spans = [(begin, end - begin) for begin, end in itertools.pairwise(edges)]
        found = [((*o, b), (*s, n)) for o, s in found for b, n in spans]
    return found


def numbered(shape: tuple[int, ...], dtype: Any = torch.float32) -> Any:
    """Return a tensor whose values all differ, as far as its dtype can tell them apart."""
    return torch.arange(math.prod(shape)).reshape(shape).to(dtype)
