"""A chunk of a tensor out of a checkpoint's file, of which only that part is looked at."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import torch

from airflow_ett.checkpoints.layout import Folder
from airflow_ett.errors import PublishError
from airflow_ett.publish.metadata import Chunk

_AT_ONCE = 8 << 20


def open_shard(path: Folder) -> Any:
    """Open a file with chunks to read. Raises ``OSError``."""
    return path.open("rb") if isinstance(path, Path) else path.open("rb", ahead=_AT_ONCE)


def load_chunk(stream: Any, path: Folder, chunk: Chunk, dtype: Any) -> Any:
    """Return a chunk's values from the open file at ``path``. Nothing but tensors is unpickled.

    Raises :class:`PublishError` where they are not what the metadata says, and ``OSError``.
    """
    try:
        values = torch.load(_part(stream, chunk), map_location="cpu", weights_only=True)
        found, wanted = (values.dtype, tuple(values.shape)), (dtype, chunk.sizes)
        if found != wanted or values.layout is not torch.strided or values.is_meta:
            raise ValueError(f"found {found} instead of {wanted}")
    except OSError:
        raise
    except Exception as error:  # whatever a stranger's bytes provoke
        problem = " ".join(str(error).split())  # torch's run over several lines
        what = f"the tensors cannot be read at {chunk.begin}: {problem}"
        raise PublishError(f"{path}: {what}") from error
    return values.resolve_conj().resolve_neg()  # they may be such views


def _part(stream: Any, chunk: Chunk) -> Any:
    """Return a chunk as a file of its own; a small one is read at once, as remote files like it."""
    if chunk.length > _AT_ONCE:
        return _Part(stream, chunk)
    stream.seek(chunk.begin)
    return io.BytesIO(stream.read(chunk.length))


class _Part(io.RawIOBase):
    """A part of a file, read little by little: remote files keep what they read in memory, too.

    Torch takes a read of less than it asked for as the file's end.
    """

    def __init__(self, stream: Any, chunk: Chunk) -> None:
        self._stream = stream
        self._begin, self._length = chunk.begin, chunk.length
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._length}[whence]
        self._position = min(max(base + offset, 0), self._length)
        return self._position

    def readinto(self, buffer: Any) -> int:
        wanted = memoryview(buffer)[: self._length - self._position]
        self._stream.seek(self._begin + self._position)
        done = 0
        while count := self._stream.readinto(wanted[done : done + _AT_ONCE]):
            done += int(count)
        self._position += done
        return done
