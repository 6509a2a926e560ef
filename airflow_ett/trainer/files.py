"""A checkpoint's files as torch writes and reads them, on a disk or behind a URI.

What a rank writes is digested on its way, so that nobody has to read it again. Imported only where
torch is in use.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemBase

from airflow_ett.checkpoints import FileDigest
from airflow_ett.checkpoints.commit import write
from airflow_ett.checkpoints.layout import Folder, folder


def make_reader(path: Folder) -> Any:
    """Return torch's reader of this folder."""
    reader = dcp.FileSystemReader(str(path))
    reader.fs, reader.path = _Files(), path
    return reader


class Writer(dcp.FileSystemWriter):  # type: ignore[misc]  # torch is not typed here
    """Torch's writer into the folder ``path``; ``own`` are further files of this rank by name.

    They are written within torch's own collective step, so that an error reaches all ranks.
    So is ``check`` called, once all is written; it raises what is wrong with the state.
    """

    def __init__(self, path: Folder, own: Mapping[str, bytes], check: Callable[[], None]) -> None:
        super().__init__(str(path), sync_files=isinstance(path, Path))
        self.fs, self.path = _Files(), path
        self._own = own
        self._check = check

    @property
    def checkpoint_id(self) -> str:
        """What the metadata says of its place: a text, which every version of Python can read."""
        return str(self.path)

    @property
    def written(self) -> Mapping[str, FileDigest]:
        """What this rank has written so far."""
        files: Mapping[str, FileDigest] = self.fs.written
        return files

    def write_data(self, plan: Any, planner: Any) -> Any:
        """Write the rank's files, each synced to the disk; raises ``OSError``."""
        for name, content in self._own.items():
            write(self.path / name, content)
            digest = hashlib.sha256(content).hexdigest()
            self.fs.written[name] = FileDigest(len(content), digest)
        try:
            told = super().write_data(plan, planner)
        except RuntimeError as error:
            # Torch's archive writer complains of its position where the file system refused.
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise
        self._check()
        return told


class _Files(FileSystemBase):  # type: ignore[misc]
    """Torch's file operations on folders of ours; ``written`` are the files with their digests."""

    def __init__(self) -> None:
        self.written: dict[str, FileDigest] = {}

    @contextlib.contextmanager
    def create_stream(self, path: Folder, mode: str) -> Iterator[Any]:
        with path.open(mode) as file:
            if "w" not in mode:
                yield file
                return
            digesting = _Digesting(file)
            yield digesting
        self.written[path.name] = FileDigest(digesting.size, digesting.sha256.hexdigest())

    def concat_path(self, path: Folder, suffix: str) -> Folder:
        return path / suffix

    def init_path(self, path: str | os.PathLike[str]) -> Folder:
        return folder(str(path))

    def rename(self, path: Folder, new_path: Folder) -> None:
        """Only the metadata, which is small, is renamed."""
        write(new_path, path.read_bytes())
        path.unlink()
        self.written[new_path.name] = self.written.pop(path.name)

    def mkdir(self, path: Folder) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def exists(self, path: Folder) -> bool:
        return path.is_file()

    def rm_file(self, path: Folder) -> None:
        path.unlink()

    def ls(self, path: Folder) -> list[str]:
        return [str(file) for file in path.iterdir()]

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True


class _Digesting(io.RawIOBase):
    """A file to write into, which digests what comes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self.sha256.update(content)
        self._file.write(content)
        self.size += memoryview(content).nbytes
        return memoryview(content).nbytes

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        if not self._file.closed:
            self._file.flush()

    def fileno(self) -> int:
        return self._file.fileno()
