"""What Airflow alone hears of a training's task, noted beside the launchers' logs.

Only the api-server hears of a task that a user marks, and only the scheduler of one that was lost.
Neither may claim the job, so each note is a log of its own: ``launcher/airflow-<time>.jsonl``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from airflow_ett.events import Event, JobKey, Kind
from airflow_ett.launch.root import Root
from airflow_ett.storage import Storage

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


def write_note(root: Root, key: JobKey, note: Note) -> bool:
    """Note it with the newest generation of ``key``'s task instance; False where there is none.

    ``key.generation`` is ignored. Raises :class:`JobLogError` when the root cannot be read,
    ``OSError`` when the note cannot be written.
    """
    newest = root.newest_generation(key)
    if not newest:
        return False
    key = replace(key, generation=newest)
    time_ns = time.time_ns()
    name = f"airflow-{time_ns}"
    fields = {"state": note.state, "by": note.by, "try": note.try_number, "text": note.text}
    event = Event(key.id, name, 0, time_ns, Kind.AIRFLOW_STATE, data=fields)
    root.open(root.place(key)).append(f"launcher/{name}.jsonl", [event])
    return True


def read_notes(storage: Storage) -> list[Note]:
    """Return a job's notes, oldest first. Raises ``OSError``."""
    events = (e for e in storage.events("launcher") if e.kind == Kind.AIRFLOW_STATE)
    return [
        Note(
            state=str(event.data.get("state")),
            by=str(event.data.get("by")),
            try_number=int(event.data.get("try") or 0),
            text=str(event.data.get("text", "")),
        )
        for event in sorted(events, key=lambda event: event.time_ns)
    ]
