"""The model's weights out of a checkpoint into one file, whatever their size and their ranks.

No process group is needed. One chunk, as a rank saved it, is in memory at a time; each is looked
at, changed and written slab by slab, so that the peak is the largest chunk and a little.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from airflow_ett.checkpoints import Checkpoint
from airflow_ett.checkpoints.layout import Folder
from airflow_ett.publish.chunks import load_chunk, open_shard
from airflow_ett.publish.damage import Damage
from airflow_ett.publish.layout import Tensor, WeightsFile, pieces
from airflow_ett.publish.metadata import Stored, stored_tensors
from airflow_ett.publish.request import INT8
from airflow_ett.publish.transforms import quantise, quantised

MODEL = "model"
"""The name under which the trainer gave the model to its checkpointer."""


def write_weights(source: Checkpoint, target: Path, *, cast: str | None) -> int:
    """Write the model's tensors as a new safetensors file; return how many values they have.

    ``cast`` is a dtype's name, for floating tensors alone, or ``int8``: see
    :mod:`airflow_ett.publish.transforms`. The checkpoint must have been verified.

    Raises :class:`PublishError` that says what is wrong with which tensor, and ``OSError``.
    """
    stored = stored_tensors(source.path, source.files.keys(), MODEL)
    as_stored = {name: Tensor(tensor.dtype, tensor.shape) for name, tensor in stored.items()}
    if cast == INT8:
        whole_path = target.with_name(f"{target.name}.whole")
        try:
            with WeightsFile(whole_path, as_stored) as whole:
                _consolidate(source.path, stored, whole)
                with WeightsFile(target, quantised(as_stored)) as small:
                    quantise(whole, small)
        finally:
            whole_path.unlink(missing_ok=True)
    else:
        dtype = None if cast is None else getattr(torch, cast)
        wanted = {name: _cast(tensor, dtype) for name, tensor in as_stored.items()}
        with WeightsFile(target, wanted) as file:
            _consolidate(source.path, stored, file)
    return sum(tensor.values for tensor in stored.values())


def _cast(tensor: Tensor, dtype: Any) -> Tensor:
    return Tensor(dtype, tensor.shape) if dtype and tensor.dtype.is_floating_point else tensor


def _consolidate(folder: Folder, stored: Mapping[str, Stored], target: WeightsFile) -> None:
    """Copy all chunks to their places, in the order in which they lie in the checkpoint's files."""
    chunks = [(chunk, name) for name, tensor in stored.items() for chunk in tensor.chunks]
    damage = Damage(folder, stored)
    for file, group in itertools.groupby(sorted(chunks), key=lambda found: found[0].file):
        with open_shard(folder / file) as shard:
            for chunk, name in group:
                values = load_chunk(shard, folder / file, chunk, stored[name].dtype)
                _place(name, pieces(values, chunk.offsets, stored[name].shape), target, damage)
                del values  # before the next one is read
    damage.tell()


def _place(name: str, parts: Iterable[Any], target: WeightsFile, damage: Damage) -> None:
    for piece, offsets in parts:
        written = piece.to(target.tensors[name].dtype)
        damage.look_at(name, piece, written)
        target.put(name, written, offsets)
