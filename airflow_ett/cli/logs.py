"""Event logs named on the command line: files, run directories, addresses, standard input."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from airflow_ett import config
from airflow_ett.cli.streams import STANDARD_INPUT, standard_input, tell
from airflow_ett.errors import ConfigurationError, EventLogError
from airflow_ett.events import CursorRecord, Event, RunDir, decode, decode_cursor
from airflow_ett.metric import Components, Fold, JobMetric
from airflow_ett.storage import is_folder

_STANDARD = "standard input"
_BATCH = 4096
_TOLD = 10


class Jobs:
    """The jobs in some logs, each read once, line by line; logs may share jobs.

    They are measured with ``components``. Lines that are no events are told on standard error, the
    first ten of each log one by one. Raises ``OSError`` for what cannot be read and
    :class:`ConfigurationError` for a folder without logs and where no event is in any log.
    """

    def __init__(self, logs: Sequence[str], components: Components) -> None:
        self._components = components
        self._folds: dict[str, Fold] = {}
        self._signs: dict[str, int | None] = {}
        for log in logs:
            if log == STANDARD_INPUT:
                self._add(_events(_STANDARD, standard_input()))
            elif not is_folder(log):
                self._add_place(log)
            elif Path(log).is_dir():
                self._add_run(log)
            else:
                with Path(log).open("rb") as file:
                    self._add(_events(log, file))
        if not self._folds:
            raise ConfigurationError("LOG", f"no event is in {', '.join(logs)}")

    def measure(
        self, *, now_ns: int | None = None, exclude: Sequence[tuple[int, int]] = ()
    ) -> list[JobMetric]:
        """Return the numbers of each job, in the order in which the logs name them.

        ``now_ns`` is the present for jobs that still run; by default that of the clock where a run
        directory shows signs of life, else the newest event's time. ``exclude`` are begin and end
        of planned maintenance.
        """
        clock = time.time_ns()
        return [
            fold.measure(
                now_ns=clock if now_ns is None and job in self._signs else now_ns,
                last_sign_ns=self._signs.get(job),
                exclude=exclude,
            )
            for job, fold in self._folds.items()
        ]

    def _add(self, events: Iterable[Event]) -> list[str]:
        """Feed the events to their jobs' folds and return these jobs, the first one first."""
        found: dict[str, None] = {}
        rest = iter(events)
        while batch := list(islice(rest, _BATCH)):
            by_job: dict[str, list[Event]] = defaultdict(list)
            for event in batch:
                by_job[event.job].append(event)
            for job, its in by_job.items():
                self._folds.setdefault(job, Fold(components=self._components)).add(its)
            found |= dict.fromkeys(by_job)
        return list(found)

    def _add_run(self, folder: str) -> None:
        run = RunDir(Path(folder))
        cursor = run.last_cursor()
        found: list[str] = []
        for path in (logs := [*run.logs()]):
            with path.open("rb") as file:
                found += self._add(_events(str(path), file, live=True))
        if not logs:
            raise ConfigurationError(
                "LOG", f"{folder} is no run directory: no *.jsonl is in its launcher or nodes"
            )
        for job in found[:1]:  # its own: an ingest reads no other there
            self._live(job, cursor, run.heartbeat_ns())

    def _add_place(self, place: str) -> None:
        """Add a job whose log is in an object store or at the API."""
        from airflow_ett.launch.root import Root

        storage = Root.of(config.load()).open(place)
        cursor = storage.read("cursor")
        found = [job for part in ("launcher", "nodes") for job in self._add(storage.events(part))]
        if not found:
            raise ConfigurationError("LOG", f"no event is at {place}")
        entries = storage.entries("nodes")
        beats = [entry.time_ns for entry in entries if entry.name.startswith("heartbeat-")]
        sign_ns = max(beats) + time.time_ns() - storage.now_ns() if beats else None
        self._live(found[0], decode_cursor(cursor) if cursor else None, sign_ns)

    def _live(self, job: str, cursor: CursorRecord | None, sign_ns: int | None) -> None:
        """Take in what shows of a job that may still run."""
        self._signs[job] = sign_ns
        if cursor and (interval := cursor.open_interval(job)):
            self._folds[job].add([interval])


def _events(name: str, file: BinaryIO, *, live: bool = False) -> Iterator[Event]:
    """The events of a log. Of a ``live`` one a last line without its newline waits: its writer may
    be at it. Else it counts if it is whole and is told if it is not.
    """
    offset = bad = 0
    for number, line in enumerate(file, 1):
        if live and not line.endswith(b"\n"):
            break
        try:
            if line.strip():
                yield decode(line)
        except EventLogError as error:
            bad += 1
            if bad <= _TOLD:
                place = f"line {number}" if name == _STANDARD else f"byte {offset}"
                tell(f"{name}, {place}: {error}")
        offset += len(line)
    if bad > _TOLD:
        tell(f"{name}: lines that are no events: {bad} in all")
