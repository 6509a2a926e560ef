"""What Airflow alone hears of a training's task, noted beside the launchers' logs.

Only the api-server hears of a task that a user marks, and only the scheduler of one that was lost.
Neither may claim the job, so each note is a log of its own: ``launcher/airflow-<time>.jsonl``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from airflow_ett.events import JobKey, Kind, LogWriter, RunDir, read_log
from airflow_ett.launch.rundirlog import newest_generation

USER, AIRFLOW = "user", "airflow"
"""Who gave the task its state."""


@dataclass(frozen=True, slots=True)
class Note:
    """A state that a task instance was given, by whom (``USER`` or ``AIRFLOW``) and in which try.

    ``text`` holds Airflow's own words.
    """

    state: str
    by: str
    try_number: int
    text: str = ""


def write_note(run_root: Path, key: JobKey, note: Note) -> bool:
    """Note it with the newest generation of ``key``'s task instance; False where there is none.

    ``key.generation`` is ignored. Raises :class:`JobLogError` when the run root cannot be read,
    ``OSError`` when the note cannot be written.
    """
    newest = newest_generation(run_root, key)
    if not newest:
        return False
    key = replace(key, generation=newest)
    name = f"airflow-{time.time_ns()}"
    path = RunDir(run_root / key.path).launcher / f"{name}.jsonl"
    writer = LogWriter(path, job=key.id, writer=name)
    try:
        fields = {"state": note.state, "by": note.by, "try": note.try_number, "text": note.text}
        writer.append(Kind.AIRFLOW_STATE, fields)
    finally:
        writer.close()
    return True


def read_notes(run_dir: RunDir) -> list[Note]:
    """Return a job's notes, oldest first. Raises ``OSError``."""
    return [
        Note(
            state=str(event.data.get("state")),
            by=str(event.data.get("by")),
            try_number=int(event.data.get("try") or 0),
            text=str(event.data.get("text", "")),
        )
        for path in sorted(run_dir.launcher.glob("airflow-*.jsonl"))
        for event in read_log(path).events
        if event.kind == Kind.AIRFLOW_STATE
    ]
