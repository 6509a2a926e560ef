"""The run directory of a job: who writes what where, and what it shows of a job that lives."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from airflow_ett.events.cursor import CursorRecord, read_cursor
from airflow_ett.events.record import AttemptId


@dataclass(frozen=True, slots=True)
class RunDir:
    """The run directory of one job: who writes what where."""

    path: Path

    @property
    def launcher(self) -> Path:
        """Launcher events, claims, submissions; not the trainer's to write where users differ."""
        return self.path / "launcher"

    @property
    def nodes(self) -> Path:
        """One log per agent and trainer process, and the agents' heartbeat files."""
        return self.path / "nodes"

    @property
    def replies(self) -> Path:
        """One JSON file per node and attempt: how each rank ended."""
        return self.path / "replies"

    @property
    def cursor(self) -> Path:
        """The memory-mapped cursor record of rank 0."""
        return self.path / "cursor"

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints go unless the job has a ``checkpoint_uri``."""
        return self.path / "checkpoints"

    def logs(self) -> Iterator[Path]:
        """Yield each log of the job, launcher's first, in a stable order: regular files only."""
        for folder in (self.launcher, self.nodes):
            if _is_folder(folder):
                yield from sorted(
                    path for path in folder.iterdir() if path.suffix == ".jsonl" and _is_file(path)
                )

    def logged_ns(self) -> int | None:
        """When a log was last written to, in UTC ns; None where there is none."""
        return _newest(self.logs())

    def heartbeat_ns(self) -> int | None:
        """When an agent of the job last lived, in UTC ns; None where none did."""
        return _newest(self.nodes.glob("heartbeat-*")) if _is_folder(self.nodes) else None

    def last_cursor(self) -> CursorRecord | None:
        """The cursor file's record, None where none can be read.

        Whoever adds its open interval to the logs reads it before them: an interval that the
        trainer closes in between is in both then, and counts once.
        """
        with suppress(OSError):
            if stat.S_ISREG(self.cursor.lstat().st_mode):
                return read_cursor(self.cursor)
        return None

    def heartbeat(self, attempt: AttemptId, node: int) -> Path:
        """The file whose modification time says when the agent of ``node`` last lived."""
        return self.nodes / f"heartbeat-{attempt.submission}.{attempt.scheduler_restart}-n{node}"

    def stacks(self, attempt: AttemptId, node: int) -> Path:
        """Where the threads of the node's ranks stood at each stall of an attempt."""
        return self.nodes / f"stacks-{attempt}-n{node}.txt"

    def reply(self, attempt: AttemptId, node: int) -> Path:
        """The agent's reply for one node and attempt."""
        return self.replies / f"{attempt}-n{node}.json"


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _is_file(path: Path) -> bool:
    """No link, and no pipe: opening one blocks."""
    return path.is_file() and not path.is_symlink()


def _newest(paths: Iterable[Path]) -> int | None:
    times: list[int] = []
    for path in paths:
        with suppress(OSError):
            times.append(path.lstat().st_mtime_ns)
    return max(times, default=None)
