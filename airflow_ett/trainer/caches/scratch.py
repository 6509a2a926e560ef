"""The folder on a node in which the ranks of one attempt keep what they compile.

::

    <TMPDIR>/airflow-ett-<uid>/compiled/
      lock             held while a folder is taken or left
      <name>.users     held by each process that is at work in the folder of that name
      <name>/restored  what restoring came to; held while somebody restores
      <name>/inductor  what torch reads and writes

The locks are the kernel's (``flock``): a process that is killed leaves none, so whoever comes next
removes the folders that nobody holds.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from airflow_ett.trainer.caches import trust
from airflow_ett.trainer.levers import Outcome

_POLL_S = 0.02
_ALONE_S = 30.0


class Restored(NamedTuple):
    """What restoring came to, as the ``lever`` event tells it; ``files`` are there since, by size.

    ``size`` is None where nothing was restored.
    """

    outcome: Outcome
    reason: str
    size: int | None
    files: Mapping[str, int]


class Scratch:
    """The folder of a name, taken by this process. Raises ``OSError`` where there can be none."""

    def __init__(self, name: str) -> None:
        own = Path(os.environ.get("TMPDIR") or "/tmp").resolve() / f"airflow-ett-{os.getuid()}"
        if (
            trust.make(own) != own
        ):  # others may make one; what lies where it points would be removed
            raise trust.Untrusted(f"{own} is a link")
        self._root = trust.make(own / "compiled")
        self._folder = self._root / name
        self.inductor = self._folder / "inductor"
        with self._alone():
            self._sweep()
            self._users = self._held(name, fcntl.LOCK_SH)
            self.inductor.mkdir(mode=0o700, parents=True, exist_ok=True)

    def once(self, restore: Callable[[], Restored], *, within_s: float) -> Restored:
        """Have one of the processes restore; return what that came to.

        Raises ``TimeoutError`` where another one is at it for longer.
        """
        with _locked(self._folder / "restored", within_s) as file:
            file.seek(0)
            text = file.read()
            if text:
                return Restored(*json.loads(text))
            restored = restore()
            file.write(json.dumps(restored).encode())
            file.flush()
            return restored

    def leave(self) -> None:
        """Remove the folder, unless another process is still at work in it. Raises ``OSError``."""
        with self._alone():
            _unlock(self._users)
            self._users.close()
            self._sweep()

    def _sweep(self) -> None:
        """Remove the folders that nobody is at work in."""
        for name in {path.stem for path in self._root.iterdir() if path.name != "lock"}:
            try:
                users = self._held(name, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            with users:
                shutil.rmtree(self._root / name, ignore_errors=True)
                (self._root / f"{name}.users").unlink()
                _unlock(users)

    def _held(self, name: str, lock: int) -> IO[bytes]:
        users = (self._root / f"{name}.users").open("ab")
        try:
            fcntl.flock(users, lock)
        except OSError:
            users.close()
            raise
        return users

    def _alone(self) -> AbstractContextManager[IO[bytes]]:
        return _locked(self._root / "lock", _ALONE_S)


@contextmanager
def _locked(path: Path, within_s: float) -> Iterator[IO[bytes]]:
    with path.open("a+b") as file:
        _lock(file, path, time.monotonic() + within_s, within_s)
        try:
            yield file
        finally:
            _unlock(file)


def _lock(file: IO[bytes], path: Path, until: float, within_s: float) -> None:
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                told = f"{path} is held by another process for more than {within_s:g} s"
                raise TimeoutError(told) from None
            time.sleep(_POLL_S)


def _unlock(file: IO[bytes]) -> None:
    """Closing the file is not enough: a child may have inherited it."""
    fcntl.flock(file, fcntl.LOCK_UN)
