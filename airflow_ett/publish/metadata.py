"""Which tensors a distributed checkpoint holds, and where their pieces lie: read without trust.

The checkpoint's metadata is a pickle. It is read with an unpickler that knows only the classes such
metadata is made of, so it can run nothing. Byte items (pickles, too) are not read at all.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Collection
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata

from airflow_ett.checkpoints.layout import Folder
from airflow_ett.errors import PublishError

METADATA_FILE = ".metadata"
_ALLOWED = {
    "torch": {"Size"},
    "torch.serialization": {"_get_layout"},
    "torch.distributed.checkpoint.metadata": {
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
}
_PATHS = {"pathlib", "pathlib._local"}


class Chunk(NamedTuple):
    """A piece of a tensor, as one rank saved it: ``sizes`` from ``offsets`` on, in the tensor.

    It lies in ``file``, in ``length`` bytes from ``begin`` on, as ``torch.save`` writes a tensor.
    """

    file: str
    begin: int
    length: int
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


class Stored(NamedTuple):
    """A tensor of the checkpoint: ``dtype`` is torch's; the chunks make up its whole shape."""

    dtype: Any
    shape: tuple[int, ...]
    chunks: tuple[Chunk, ...]

    @property
    def values(self) -> int:
        """How many values it has."""
        return math.prod(self.shape)


def stored_tensors(folder: Folder, files: Collection[str], prefix: str) -> dict[str, Stored]:
    """Return the tensors whose names begin with ``prefix`` and a dot, under the rest of the name.

    ``files`` are the names of the checkpoint's verified files; no chunk lies in another.
    Raises :class:`PublishError` that says what is wrong with the metadata, and ``OSError``.
    """
    path = folder / METADATA_FILE
    if METADATA_FILE not in files:
        raise PublishError(f"{path}: missing from the checkpoint's manifest")
    content = path.read_bytes()
    try:
        stored, strangers = _read(content, f"{prefix}.", files)
    except Exception as error:  # whatever a stranger's bytes provoke
        raise PublishError(f"{path}: cannot be read safely: {error}") from error
    if strangers:
        raise PublishError(f"{path}: names files that are not the checkpoint's: {strangers}")
    if not stored:
        raise PublishError(f"{folder}: the checkpoint holds no tensors below {prefix!r}")
    return stored


class _Path:
    """Stands for a path in the metadata, which nobody needs: a pickle may set a class's fields."""

    def __init__(self, *parts: object) -> None:
        pass


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if is_dtype or name in _ALLOWED.get(module, ()):
            return super().find_class(module, name)
        if module in _PATHS and name.endswith("Path"):
            return _Path
        raise pickle.UnpicklingError(f"{module}.{name} does not belong into checkpoint metadata")


def _read(
    content: bytes, prefix: str, files: Collection[str]
) -> tuple[dict[str, Stored], set[str]]:
    """Return the tensors, and the files that the checkpoint does not have."""
    metadata = _Unpickler(io.BytesIO(content)).load()
    if not isinstance(metadata, Metadata):
        raise TypeError(f"holds {type(metadata).__name__} instead of Metadata")
    strangers = {info.relative_path for info in metadata.storage_data.values()} - set(files)
    stored = {
        name[len(prefix) :]: _stored(name, entry, metadata.storage_data)
        for name, entry in metadata.state_dict_metadata.items()
        if name.startswith(prefix) and isinstance(entry, TensorStorageMetadata)
    }
    return stored, strangers


def _stored(name: str, entry: Any, places: Any) -> Stored:
    dtype, shape = entry.properties.dtype, tuple(map(int, entry.size))
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{name} is of {dtype!r}, which is no dtype")
    chunks = []
    for piece in entry.chunks:
        offsets, sizes = tuple(map(int, piece.offsets)), tuple(map(int, piece.sizes))
        if not all(
            offset >= 0 and size >= 0 and offset + size <= whole
            for offset, size, whole in zip(offsets, sizes, shape, strict=True)
        ):
            raise ValueError(f"{name} has a chunk of {sizes} at {offsets}, outside of {shape}")
        info = places.get(MetadataIndex(name, offsets))
        if info is None:
            raise ValueError(f"{name} has a chunk at {offsets} that lies in no file")
        if getattr(info, "transform_descriptors", None):
            raise ValueError(f"{name} was saved with {info.transform_descriptors}; save it without")
        chunks.append(Chunk(info.relative_path, int(info.offset), int(info.length), offsets, sizes))
    stored = Stored(dtype, shape, tuple(chunks))
    held = sum(math.prod(chunk.sizes) for chunk in chunks)
    if held != stored.values:
        raise ValueError(f"{name} has chunks of {held} values, and {stored.values} by its shape")
    return stored
