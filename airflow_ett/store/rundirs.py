"""Run directories below a root, and their logs to read on from where an ingest had stopped."""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from airflow_ett.events import Chunk, RunDir, read_log, slug
from airflow_ett.store.report import IngestReport
from airflow_ett.store.storable import refusal

_DEPTH = 5
_log = logging.getLogger(__name__)


def run_dirs(run_root: Path, deployment: str | None = None) -> Iterator[Path]:
    """Yield the run directories below ``run_root``, never through a link."""
    if deployment is None:
        return _descend(run_root, _DEPTH)
    return _descend(run_root / slug(deployment), _DEPTH - 1)


def find_logs(run: RunDir) -> tuple[dict[str, Path], IngestReport]:
    """The logs by name, and a report of those whose file name is no text."""
    logs = {_name(run, path): path for path in run.logs()}
    odd = [name for name in logs if not name.isprintable()]
    problems = tuple(f"{run.path}: the file name {logs.pop(n).name!r} is no text" for n in odd)
    return logs, IngestReport(problems=problems)


def read_new(
    logs: Mapping[str, Path], offsets: Mapping[str, int]
) -> tuple[dict[str, Chunk], IngestReport]:
    """Read each log that has grown. One that has shrunk was replaced: from its begin again."""
    reads: dict[str, Chunk] = {}
    refused = 0
    problems: list[str] = []
    for name, path in logs.items():
        try:
            facts = path.lstat()
            start = offsets.get(name, 0)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size == start:
                continue
            chunk = read_log(path, start if start < facts.st_size else 0)
        except OSError as error:
            problems.append(f"{path}: {error.strerror or error}")
            continue
        if chunk.events or chunk.bad:
            wrong = [(event, refusal(event)) for event in chunk.events]
            odd = [f"{name}, {e.writer:.40} event {e.seq}: {why}" for e, why in wrong if why]
            problems += odd
            refused += len(odd)
            reads[name] = replace(chunk, events=tuple(e for e, why in wrong if not why))
    return reads, IngestReport(bad_lines=refused, problems=tuple(problems))


def _name(run: RunDir, log: Path) -> str:
    """The log's path below the run root: the same wherever the root is mounted."""
    return "/".join((*run.path.parts[-_DEPTH:], *log.relative_to(run.path).parts))


def _descend(folder: Path, depth: int) -> Iterator[Path]:
    if depth == 0:
        yield folder
        return
    try:
        children = sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink())
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("ETT: cannot look for run directories in %s: %s", folder, error)
        return
    for child in children:
        yield from _descend(child, depth - 1)
