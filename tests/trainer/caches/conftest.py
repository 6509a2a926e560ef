"""A machine without torch, and the attempts of a training on it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from airflow_ett.trainer.caches import inductor, key
from airflow_ett.trainer.caches.inductor import DIRECTORY
from airflow_ett.trainer.caches.store import CacheStore
from tests.trainer.caches.attempts import Attempt, Open


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without torch."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for variable in (DIRECTORY, inductor._HEADERS, *inductor._SWITCHES):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    monkeypatch.setattr(key, "software", lambda: {"torch": "2.13.0"})
    monkeypatch.setattr(key, "machine", lambda: {"GPU": "A100"})
    monkeypatch.setattr(inductor, "sys", ModuleType("sys"))
    monkeypatch.setattr(inductor.sys, "modules", {}, raising=False)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "deployment" / "dag"


@pytest.fixture
def begin(cache: Path) -> Iterator[Open]:
    """A function that opens the compile cache in the next attempt, or in one of its ranks."""
    made: list[Attempt] = []

    def begin(number: int | None = None, **options: Any) -> Attempt:
        ranks = {k: options.pop(k) for k in list(options) if k in ("local_rank", "world_size")}
        attempt = Attempt(number or len(made) + 1, str(cache), **ranks).open(**options)
        made.append(attempt)
        return attempt

    yield begin
    for attempt in made:
        attempt.close(hurried=True)


@pytest.fixture
def saved(begin: Open) -> Attempt:
    """A first attempt that has compiled and kept something."""
    first = begin()
    first.compile("one")
    first.close()
    return first


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What every write to the store waits for; ``begun`` tells that one does."""
    held: Any = threading.Event()
    held.begun = threading.Semaphore(0)
    held.writes = []
    write = CacheStore.write

    def wait(store: CacheStore, name: str, content: bytes, about: Any) -> None:
        held.writes.append(name)
        held.begun.release()
        held.wait(30)
        write(store, name, content, about)

    monkeypatch.setattr(CacheStore, "write", wait)
    yield held
    held.set()
