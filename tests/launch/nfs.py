"""NFS as its clients show it: listings as old as a client's memory, answers that get lost.

A client lists a folder once and remembers the names until it makes an entry there itself, which is
what Linux does between two looks at a folder's attributes (up to a minute). A lost answer has the
client send its request again, which then finds the work done.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class Nfs:
    """Several clients of one file system in this process; ``on`` says whose turn it is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._client = ""
        self._remembered: dict[tuple[str, Path], list[Path]] = {}
        self.answers_lost = 0
        self._iterdir, self._open, self._link = Path.iterdir, os.open, os.link
        monkeypatch.setattr(Path, "iterdir", lambda folder: self._list(folder))
        monkeypatch.setattr(os, "open", self._opened)
        monkeypatch.setattr(os, "link", self._linked)

    @contextlib.contextmanager
    def on(self, client: str) -> Iterator[None]:
        """Do what follows as this client."""
        before, self._client = self._client, client
        try:
            yield
        finally:
            self._client = before

    def _list(self, folder: Path) -> Iterator[Path]:
        memory = (self._client, folder)
        if memory not in self._remembered:
            self._remembered[memory] = list(self._iterdir(folder))
        return iter(self._remembered[memory])

    def _opened(self, path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        made = flags & os.O_CREAT and not os.path.lexists(path)
        handle = self._open(path, flags, *arguments, **options)
        if made:
            self._forget(Path(path).parent)
        return handle

    def _linked(self, source: Any, target: Any) -> None:
        self._link(source, target)
        self._forget(Path(target).parent)
        if self.answers_lost:
            self.answers_lost -= 1
            raise FileExistsError(f"{target} is there (the second request)")

    def _forget(self, folder: Path) -> None:
        self._remembered.pop((self._client, folder), None)
