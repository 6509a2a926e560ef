"""Run directories below a root, and their logs to read on from where an ingest had stopped.

A root is a folder, or the URI of an object store's folder.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from airflow_ett.events import Chunk, slug
from airflow_ett.storage import FolderStorage, Readable, is_folder
from airflow_ett.storage.objects import ObjectStorage
from airflow_ett.store.report import IngestReport
from airflow_ett.store.storable import refusal

_DEPTH = 5
_AT_ONCE = 16
"""Requests to an object store at the same time: each waits for an answer."""

_log = logging.getLogger(__name__)


def run_places(root: Path | str, deployment: str | None = None) -> Iterator[str]:
    """Yield where jobs lie below ``root``, as folders or URIs, never through a link.

    Raises ``OSError`` when an object store does not answer.
    """
    if is_folder(root):
        return map(str, run_dirs(Path(root), deployment))
    uri = str(root).rstrip("/")
    if deployment is None:
        return iter(_descend_uri(uri, _DEPTH))
    return iter(_descend_uri(f"{uri}/{slug(deployment)}", _DEPTH - 1))


def run_dirs(run_root: Path, deployment: str | None = None) -> Iterator[Path]:
    """Yield the run directories below ``run_root``, never through a link."""
    if deployment is None:
        return _descend(run_root, _DEPTH)
    return _descend(run_root / slug(deployment), _DEPTH - 1)


def find_logs(place: Readable) -> tuple[dict[str, str], IngestReport]:
    """The logs by the names of their sources, and a report of those whose file name is no text."""
    logs = {source_name(place, log): log for log in place.logs()}
    odd = [logs.pop(name) for name in list(logs) if not name.isprintable()]
    names = (log.rpartition("/")[2] for log in odd)
    problems = tuple(f"{place.place}: the file name {name!r} is no text" for name in names)
    return logs, IngestReport(problems=problems)


def read_new(
    place: Readable, logs: Mapping[str, str], offsets: Mapping[str, int]
) -> tuple[dict[str, Chunk], IngestReport]:
    """Read what is new in each log. One that has shrunk was replaced: from its begin again."""
    reads: dict[str, Chunk] = {}
    refused = 0
    problems: list[str] = []
    for name, found in _read(place, logs, offsets):
        if isinstance(found, OSError):
            problems.append(f"{place.place}/{logs[name]}: {found.strerror or found}")
        elif found.events or found.bad:
            wrong = [(event, refusal(event)) for event in found.events]
            odd = [f"{name}, {e.writer:.40} event {e.seq}: {why}" for e, why in wrong if why]
            problems += odd
            refused += len(odd)
            reads[name] = replace(found, events=tuple(e for e, why in wrong if not why))
    return reads, IngestReport(bad_lines=refused, problems=tuple(problems))


def source_name(place: Readable, log: str) -> str:
    """The path of a log, or of a part of it, below the root: the same wherever that is mounted."""
    return "/".join((*place.place.split("/")[-_DEPTH:], log))


def _read(
    place: Readable, logs: Mapping[str, str], offsets: Mapping[str, int]
) -> Iterable[tuple[str, Chunk | OSError]]:
    def read(name: str) -> tuple[str, Chunk | OSError]:
        try:
            return name, place.read_log(logs[name], offsets.get(name, 0))
        except OSError as error:
            return name, error

    if isinstance(place, FolderStorage):
        return map(read, logs)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(read, logs))


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


def _descend_uri(uri: str, depth: int) -> list[str]:
    """Return the folders ``depth`` below a URI; those of one level are listed at the same time."""
    level = [uri]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in range(depth):
            names = pool.map(lambda each: ObjectStorage(each).folders(), level)
            level = [
                f"{each}/{name}" for each, found in zip(level, names, strict=True) for name in found
            ]
    return level
