"""The model's tensors out of a distributed checkpoint, without a process group and without trust.

The checkpoint's metadata is a pickle. It is read with an unpickler that knows only the classes such
metadata is made of, so it can run nothing. Byte items (pickles, too) are not read at all.
"""

from __future__ import annotations

import contextlib
import pickle
import warnings
from collections.abc import Collection, Iterator
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata

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
    "pathlib": {"PosixPath", "PurePosixPath"},
    "pathlib._local": {"PosixPath", "PurePosixPath"},
}


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if is_dtype or name in _ALLOWED.get(module, ()):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} does not belong into checkpoint metadata")


class _Files:
    """Torch's file operations, as far as reading needs them, on a folder of ours."""

    @contextlib.contextmanager
    def create_stream(self, path: Folder, mode: str) -> Iterator[Any]:
        with path.open(mode) as stream:
            yield stream

    def concat_path(self, path: Folder, suffix: str) -> Folder:
        return path / suffix


class _Reader(dcp.FileSystemReader):  # type: ignore[misc]  # torch is not typed here
    """Reads the shards of a checkpoint whose metadata was read safely before."""

    def __init__(self, folder: Folder, metadata: Any) -> None:
        super().__init__(str(folder))
        self._metadata = metadata
        self.fs, self.path = _Files(), folder

    def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
        return self._metadata


def read_tensors(folder: Folder, files: Collection[str], prefix: str) -> dict[str, Any]:
    """Return the tensors whose names begin with ``prefix`` and a dot, under the rest of the name.

    ``files`` are the names of the checkpoint's verified files; none else is opened.
    Raises :class:`PublishError` that says what is wrong with which file.
    """
    metadata = _read_metadata(folder, files)
    stored = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in metadata.state_dict_metadata.items()
        if name.startswith(f"{prefix}.") and isinstance(entry, TensorStorageMetadata)
    }
    if not stored:
        raise PublishError(f"{folder}: the checkpoint holds no tensors below {prefix!r}")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is", UserWarning)
            dcp.load(stored, storage_reader=_Reader(folder, metadata))
    except (Exception, CheckpointException) as error:  # the latter is none of the former
        raise PublishError(f"{folder}: the tensors cannot be read: {error}") from error
    plain = {name[len(prefix) + 1 :]: tensor for name, tensor in stored.items()}
    _require_finite(folder, plain)
    return plain


def _read_metadata(folder: Folder, files: Collection[str]) -> Any:
    path = folder / METADATA_FILE
    if METADATA_FILE not in files:
        raise PublishError(f"{path}: missing from the checkpoint's manifest")
    try:
        with path.open("rb") as file:
            metadata = _MetadataUnpickler(file).load()
        if not isinstance(metadata, Metadata):
            raise TypeError(f"holds {type(metadata).__name__} instead of Metadata")
        strangers = {info.relative_path for info in metadata.storage_data.values()} - set(files)
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
    except Exception as error:  # whatever a stranger's bytes provoke
        raise PublishError(f"{path}: cannot be read safely: {error}") from error
    if strangers:
        raise PublishError(f"{path}: names files that are not the checkpoint's: {strangers}")
    return metadata


def _require_finite(folder: Folder, tensors: dict[str, Any]) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            bad = int((~tensor.isfinite()).sum())
            raise PublishError(
                f"{folder}: {bad} of {tensor.numel()} values of {name} are NaN or infinite; "
                "publish an earlier checkpoint"
            )
