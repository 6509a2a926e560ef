"""One training as its files show it: cheap looks while it runs, whole records afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from airflow_ett.checkpoints.layout import MARKER, parse_name
from airflow_ett.events import Event, JobKey, Kind, RunDir, read_log
from airflow_ett.events.log import Chunk
from tests.system.chaos.plan import Course

TASK_ID = "train"
DEPLOYMENT = "chaos"


@dataclass
class View:
    """A run of a chaos DAG. ``home`` is Airflow's."""

    course: Course
    home: Path

    @cached_property
    def dag_id(self) -> str:
        return f"chaos_{self.course.kind}"

    @cached_property
    def run_id(self) -> str:
        return f"course-{self.course.number}"

    @cached_property
    def place(self) -> Path:
        return self.home / "places" / self.run_id

    @cached_property
    def run_dir(self) -> RunDir:
        key = JobKey(DEPLOYMENT, self.dag_id, self.run_id, TASK_ID)
        return RunDir(self.home / "ett" / "runs" / key.path)

    def __str__(self) -> str:
        return f"course {self.course.number} ({self.course.kind})"

    def newest_claim(self) -> dict[str, Any] | None:
        """Return what the newest claim's file says, with its time as ``time_ns``."""
        return _newest(self.run_dir.launcher / "claims")

    def newest_intent(self) -> dict[str, Any] | None:
        """Return what the newest submission's file says, with ``time_ns`` and ``number``."""
        return _newest(self.run_dir.launcher / "submissions")

    def newest_app(self) -> str | None:
        """Return the name of the newest submission's app."""
        intent = self.newest_intent()
        return str(intent["app"]) if intent else None

    def succeeded(self) -> bool:
        """Whether the newest submission's trainer has ended well, as its agent told."""
        intent = self.newest_intent()
        if intent is None:
            return False
        name = f"{intent['number']}.*.json"
        replies = [json.loads(path.read_bytes()) for path in self.run_dir.replies.glob(name)]
        newest = max(replies, key=lambda reply: list(reply["attempt"]), default=None)
        return newest is not None and all(rank["exit_code"] == 0 for rank in newest["ranks"])

    def is_saving(self) -> bool:
        """Whether a checkpoint is being written."""
        folder = self.run_dir.checkpoints
        if not folder.is_dir():
            return False
        return any(parse_name(p.name) and not (p / MARKER).exists() for p in folder.iterdir())

    def starts(self) -> list[tuple[int, str, int]]:
        """Return each trainer's process id, attempt and first cursor."""
        words = (line.split() for line in _lines(self.place / "starts"))
        return [(int(pid), attempt, int(start)) for pid, _, attempt, start in words]

    def begins(self) -> list[tuple[int, str]]:
        """Return when each trainer started (UTC ns), and its attempt."""
        words = (line.split() for line in _lines(self.place / "starts"))
        return [(int(time_ns), attempt) for _, time_ns, attempt, _ in words]

    def trained(self, pid: int) -> int:
        """Return the step to which a trainer came, as it told itself; 0 where it made none."""
        return int("".join(_lines(self.place / f"trained-{pid}")) or 0)

    def wrong(self) -> list[str]:
        """Return what trainers found wrong."""
        return _lines(self.place / "wrong")

    def set_goal(self, margin: int) -> None:
        """Have the training end ``margin`` steps after the largest cursor so far."""
        record = self.run_dir.last_cursor()
        draft = self.place / "goal.draft"
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(str((record.hwm if record else 0) + margin))
        draft.replace(self.place / "goal")

    def goal(self) -> int | None:
        """Return the cursor at which the training is to end."""
        path = self.place / "goal"
        return int(path.read_text()) if path.exists() else None

    def chunks(self) -> dict[Path, Chunk]:
        """Return each log's lines."""
        return {path: read_log(path) for path in self.run_dir.logs()}

    def events(self, *kinds: Kind) -> list[Event]:
        """Return the job's events of these kinds in the order of logs, each once."""
        found: dict[tuple[str, int], Event] = {}
        for chunk in self.chunks().values():
            for event in chunk.events:
                found.setdefault((event.writer, event.seq), event)
        return [event for event in found.values() if event.kind in kinds or not kinds]

    def attempts(self) -> list[tuple[int, int]]:
        """Return submission and scheduler's restart of all that was begun, in order."""
        runs = {int(e.data["submission"]): 0 for e in self.events(Kind.SUBMIT_INTENDED)}
        for event in self.events(Kind.SCHEDULER_STATE):
            if event.attempt is not None:
                number, restart = event.attempt[:2]
                runs[number] = max(runs.get(number, 0), restart)
        return [(number, run) for number, last in sorted(runs.items()) for run in range(last + 1)]

    def over(self) -> bool:
        """Whether the log has the job's end, or never had its begin."""
        return bool(self.events(Kind.JOB_ENDED)) or not self.begun()

    def begun(self) -> bool:
        """Whether the job was opened: a task can be marked before that."""
        return bool(self.events(Kind.JOB_OPENED))


def _newest(folder: Path) -> dict[str, Any] | None:
    names = [path for path in _entries(folder) if path.suffix == ".json"]
    if not names:
        return None
    path = max(names)
    content: dict[str, Any] = json.loads(path.read_bytes())
    return {**content, "time_ns": path.stat().st_mtime_ns, "number": int(path.stem)}


def _entries(folder: Path) -> Iterable[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return ()


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
