"""What a Session writes to: its log and the cursor file; and the first that it tells."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from airflow_ett.events import CursorFile, Kind, LogWriter, read_cursor, trainer_writer
from airflow_ett.trainer import rankreport
from airflow_ett.trainer.journal import Journal
from airflow_ett.trainer.place import Place, process_start_ns

_log = logging.getLogger("airflow_ett.trainer")


def open_log(place: Place) -> LogWriter | None:
    """Return the log to write; only a node's first process has one in the run directory."""
    writer = trainer_writer(place.attempt, place.rank, os.getpid())
    path = place.run_dir.nodes / f"{writer}.jsonl"
    if place.local_rank != 0:
        told = os.environ.get(rankreport.VARIABLE)
        if not told:
            return None
        path = Path(told)
    try:
        first = place.first_number
        return LogWriter(path, job=place.context.key.id, writer=writer, first=first)
    except OSError as error:
        _log.warning("This training is not measured: %s cannot be written: %s", path, error)
        return None


def open_cursor(place: Place) -> tuple[CursorFile | None, int]:
    """Return the cursor file to write, on the first rank, and the high-water mark known."""
    path, hwm = place.run_dir.cursor, place.context.hwm
    try:
        record = read_cursor(path)
        hwm = max(hwm, record.hwm if record else 0)
        if place.context.log and place.rank == 0:
            from airflow_ett.trainer import shipping

            hwm = max(hwm, shipping.hwm_elsewhere(place))
        return (CursorFile(path) if place.rank == 0 else None), hwm
    except OSError as error:
        _log.warning("The cursor is not kept: %s cannot be written: %s", path, error)
        return None, hwm


def tell_start(journal: Journal, place: Place, hwm: int) -> None:
    """Tell when and where this process began, and that its Session has; ``hwm`` is known so far."""
    started = {
        "role": "trainer",
        "pid": os.getpid(),
        "host": os.uname().nodename,
        "node": place.node,
        "world_size": place.world_size,
    }
    journal.emit(Kind.PROCESS_STARTED, started, time_ns=process_start_ns())
    version = getattr(sys.modules.get("torch"), "__version__", None)
    data = {"cursor_hwm": hwm, "torch": version and str(version)}
    journal.emit(Kind.SESSION_STARTED, data)
