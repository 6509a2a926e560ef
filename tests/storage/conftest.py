"""Every kind of place, empty: what a place promises holds for each of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_ett.storage import Storage, open_storage
from airflow_ett.store import upgrade
from tests.api.server import serving
from tests.s3 import new_bucket

Opened = Callable[[], Storage]
"""Opens one and the same place anew, as another process would."""


@pytest.fixture
def in_a_folder(tmp_path: Path) -> Opened:
    """A run directory."""
    return lambda: open_storage(str(tmp_path / "job"))


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """fsspec's memory, which looks and writes in two steps: a lock makes one of them."""
    from fsspec.implementations.memory import MemoryFileSystem

    lock, pipe_file = threading.Lock(), MemoryFileSystem.pipe_file

    def alone(self: MemoryFileSystem, *arguments: object, **options: object) -> None:
        with lock:
            pipe_file(self, *arguments, **options)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", alone)
    yield lambda: open_storage("memory://runs/job")
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


@pytest.fixture
def on_s3(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """A real S3 server on loopback."""
    uri = new_bucket(monkeypatch)
    return lambda: open_storage(f"{uri}/runs/job")


@pytest.fixture
def in_the_api(tmp_path: Path) -> Iterator[Opened]:
    """A real API server on loopback."""
    url = f"sqlite:///{tmp_path}/ett.db"
    upgrade(url)
    with serving(url) as api:
        yield lambda: api.storage("0123456789abcdef0123")


PLACES = ["in_a_folder", "in_memory", "on_s3", "in_the_api"]
"""The fixtures that open a place of each kind."""


@pytest.fixture(params=PLACES)
def opened(request: pytest.FixtureRequest) -> Opened:
    """One place of each kind."""
    found: Opened = request.getfixturevalue(request.param)
    return found
