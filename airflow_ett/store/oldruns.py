"""Removing what run directories hold of jobs that ended long ago.

A task instance's generations go together, and only if the database has taken in every line of
their logs and knows each of them as ended. The newest one keeps ``launcher/``, some kilobytes: it
says that the job is over, so that a clear begins the next generation and not the same job once
more. A run directory is marked before the first of it goes: what is killed halfway goes on the next
time, and nobody measures a job from what is left.

Only what lies right below the root is touched, no link is followed, and only what airflow-ett has
put there is removed.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, select

from airflow_ett.checkpoints.layout import LEASE
from airflow_ett.errors import EventLogError
from airflow_ett.events import JobKey, RunDir
from airflow_ett.storage import FolderStorage
from airflow_ett.store import tables
from airflow_ett.store.engine import Store
from airflow_ett.store.pruned import RUN_DIR_MARK
from airflow_ett.store.retention import Pruned, newest_event_ns
from airflow_ett.store.rundirs import find_logs, run_dirs
from airflow_ett.store.sources import find_sources

_WHAT = "run directories"
_BULK = ("nodes", "replies", "cursor")
_job = tables.job.c


@dataclass(frozen=True, slots=True)
class _Old:
    """A generation that is over: its folder and its newest event, in UTC ns."""

    path: Path
    newest_ns: int

    @property
    def holds_checkpoints(self) -> bool:
        """Whether there are checkpoints, or what else somebody keeps there, perhaps elsewhere."""
        folder = self.path / "checkpoints"
        return folder.is_symlink() or (
            _is_folder(folder) and any(path.name != LEASE for path in folder.iterdir())
        )


def prune_run_dirs(
    store: Store, root: Path, before_ns: int, *, checkpoints_before_ns: int | None, dry_run: bool
) -> Pruned:
    """Remove run directories whose jobs' newest event is older than ``before_ns``.

    One with checkpoints keeps these unless it is older than ``checkpoints_before_ns``, too (None:
    for ever). Raises :class:`StoreError`; what cannot be removed is told in ``kept``.
    """
    total = Pruned(_WHAT)
    for base in dict.fromkeys(path.parent for path in run_dirs(root)):
        try:
            old = _all_over(store, root, _generations(base), before_ns)
            newest_ns = max((one.newest_ns for one in old), default=0)
            spare = checkpoints_before_ns is None or newest_ns >= checkpoints_before_ns
            for one in old:
                last = one is old[-1]
                keep = spare and one.holds_checkpoints
                if not dry_run and _generations(base)[-1] != old[-1].path:
                    break  # the task was cleared just now, and what it inherits may lie here
                total += _remove(one, last=last, keep=keep, dry_run=dry_run)
        except FileNotFoundError:
            continue  # another pruning, or its owner, is at it
        except (OSError, EventLogError) as error:
            total += Pruned(_WHAT, kept=(f"{base}: {error}",))
    return total


def _remove(old: _Old, *, last: bool, keep: bool, dry_run: bool) -> Pruned:
    """Remove a generation, all of it unless it is the ``last`` or has to ``keep`` checkpoints."""
    whole = not (last or keep)
    names = [*_BULK, *["checkpoints"] * (not keep), *["launcher"] * whole]
    paths = [path for path in (old.path / name for name in names) if _is_there(path)]
    found = Pruned(_WHAT, 1, sum(map(_size, paths)), old.newest_ns) if paths else Pruned(_WHAT)
    if not dry_run:
        with suppress(FileNotFoundError):  # another pruning has removed it
            (old.path / RUN_DIR_MARK).touch()
        for path in paths:
            _discard(path)
        if whole:
            _remove_emptied(old.path)
    return found


def _remove_emptied(folder: Path) -> None:
    """Remove a generation's folder with its mark, unless somebody keeps something there."""
    with suppress(OSError):
        if all(path.name == RUN_DIR_MARK for path in folder.iterdir()):
            (folder / RUN_DIR_MARK).unlink(missing_ok=True)
            folder.rmdir()


def _all_over(store: Store, root: Path, generations: Sequence[Path], before_ns: int) -> list[_Old]:
    """Return the generations if each has ended and is known to the last line, else none.

    None, too, where there is nothing to remove, or anybody has written since ``before_ns``.
    """
    if len(generations) == 1 and not _holds_bulk(generations[0]):
        return []
    if any(_last_sign_ns(RunDir(path)) >= before_ns for path in generations):
        return []
    found = []
    with store.read() as connection:
        for path in generations:
            newest_ns = _ended_ns(connection, root, RunDir(path))
            if newest_ns is None or newest_ns >= before_ns:
                return []
            found.append(_Old(path, newest_ns))
    return found


def _holds_bulk(run: Path) -> bool:
    return any(_is_there(run / name) for name in (*_BULK, "checkpoints"))


def _ended_ns(connection: Connection, root: Path, run: RunDir) -> int | None:
    """Return the newest event of the job in a run directory, None unless it may be removed."""
    place = FolderStorage(run.path)
    logs, nameless = find_logs(place)
    if not logs and _is_there(run.path / RUN_DIR_MARK):
        return 0  # killed as it went
    rows = find_sources(connection, logs)
    jobs = {row.job for row in rows}
    if nameless.problems or len(jobs) != 1:
        return None
    (job,) = jobs
    row = connection.execute(select(tables.job).where(_job.job == job)).one_or_none()
    if row is None or not row.frozen:
        return None
    names = ("deployment", "dag_id", "run_id", "task_id", "map_index", "generation")
    key = JobKey(**{name: getattr(row, name) for name in names})
    offsets = {row.path: row.offset for row in rows}
    if key.id != job or root / key.path != run.path:
        return None
    if any(_unread(place, log, offsets.get(name, 0)) for name, log in logs.items()):
        return None
    return max(int(row.end_ns), newest_event_ns(connection, job) or 0)


def _unread(place: FolderStorage, log: str, offset: int) -> bool:
    chunk = place.read_log(log, offset)
    return bool(chunk.events or chunk.bad)


def _last_sign_ns(run: RunDir) -> int:
    """Return when anybody last wrote for the job, by the file system's clock; 0: nobody did."""
    signs = [run.logged_ns(), run.heartbeat_ns()]
    lease = run.checkpoints / ".lease"
    if _is_folder(run.checkpoints) and _is_folder(lease):
        signs += [path.lstat().st_mtime_ns for path in lease.iterdir()]
    return max(filter(None, signs), default=0)


def _generations(base: Path) -> list[Path]:
    """Return the generations of a task instance, the newest last."""
    numbered = [
        (int(name[1]), path)
        for path in base.iterdir()
        if (name := re.fullmatch(r"g([1-9]\d*)", path.name, re.ASCII)) and _is_folder(path)
    ]
    return [path for _, path in sorted(numbered)]


def _discard(path: Path) -> None:
    while _is_folder(path):
        with suppress(FileNotFoundError):  # another pruning is at it
            shutil.rmtree(path)
    path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder; 0 of what goes meanwhile."""
    with suppress(OSError):
        if not _is_folder(path):
            return path.lstat().st_size
        return sum(map(_size, path.iterdir()))
    return 0


def _is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
