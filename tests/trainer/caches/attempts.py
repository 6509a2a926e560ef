"""Attempts of a training whose compiler is a file that is written where torch would write it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from airflow_ett.events import AttemptId, JobContext, JobKey
from airflow_ett.trainer.caches.compilecache import CompileCache
from airflow_ett.trainer.caches.inductor import DIRECTORY
from airflow_ett.trainer.levers import Levers
from airflow_ett.trainer.place import Place


class Attempt:
    """One process of an attempt, in a launched job whose cache lies at ``cache``."""

    def __init__(self, number: int, cache: str, **place: int) -> None:
        key = JobKey("deployment", "dag", "run", "train")
        context = JobContext(key, number, "/nowhere", "", number, cache=cache)
        ranks = {"rank": 0, "local_rank": 0, "world_size": 1, "node": 0, **place}
        self.told: list[Mapping[str, Any]] = []
        self.phases: list[str] = []
        made: Any = self
        self.cache = CompileCache(
            Place(context, AttemptId(number), **ranks), made, Levers(made, os.environ)
        )

    def emit(self, kind: str, data: Mapping[str, Any]) -> None:
        """As a journal does."""
        assert kind == "lever"
        assert data["lever"] == "compile_cache"
        self.told.append(data)

    def begin(self, phase: str) -> AbstractContextManager[None]:
        """As the phases do."""
        self.phases.append(phase)
        return nullcontext()

    def open(self, *code: Any, **options: Any) -> Attempt:
        """Begin, and return the attempt."""
        self.cache.open(code, **{"uri": None, "max_bytes": 1 << 20, "mega": False, **options})
        return self

    @property
    def folder(self) -> Path:
        """Where torch compiles now."""
        return Path(os.environ[DIRECTORY])

    def compile(self, name: str, content: str = "kernel") -> None:
        """Compile something, and have it kept as the Session does."""
        path = self.folder / "ab" / f"{name}.so"
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        self.cache.keep()

    @property
    def kernels(self) -> list[str]:
        """What is compiled already."""
        return sorted(path.stem for path in self.folder.glob("ab/*.so"))

    def close(self, *, hurried: bool = False) -> None:
        self.cache.close(hurried=hurried)

    @property
    def outcomes(self) -> list[tuple[str, str | None]]:
        """What was told: outcomes and reasons."""
        return [(data["outcome"], data.get("reason")) for data in self.told]


Open = Callable[..., Attempt]
"""What opens the compile cache in the next attempt, or in one of its ranks."""
