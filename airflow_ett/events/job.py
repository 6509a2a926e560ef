"""A job's identity, its writers' names, and the context that its trainer gets."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airflow_ett.errors import EventLogError
from airflow_ett.events.record import AttemptId

_SLUG_LENGTH = 40


@dataclass(frozen=True, slots=True)
class JobKey:
    """Identity of one training; ``map_index`` is -1 where unmapped, generations start at 1."""

    deployment: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    generation: int = 1

    @property
    def id(self) -> str:
        """20 hexadecimal digits, the same for the same key everywhere."""
        return _digest(json.dumps(list(asdict(self).values())), 20)

    @property
    def path(self) -> Path:
        """The run directory's path below a root: readable slugs with a hash of the whole name."""
        return self.base / f"g{self.generation}"

    @property
    def base(self) -> Path:
        """The folder that holds all generations of this task instance."""
        task = self.task_id if self.map_index < 0 else f"{self.task_id}[{self.map_index}]"
        return Path(*(slug(part) for part in (self.deployment, self.dag_id, self.run_id, task)))

    def __str__(self) -> str:
        task = self.task_id if self.map_index < 0 else f"{self.task_id}[{self.map_index}]"
        return f"{self.dag_id}.{task} run {self.run_id} generation {self.generation}"


def slug(text: str, length: int = _SLUG_LENGTH) -> str:
    """Return ``text`` as a safe file name: lower-case ASCII, at most ``length`` + 9 characters.

    Different texts give different names, since a hash of the whole text is at the end.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:length].strip("-")
    return f"{plain or 'x'}-{_digest(text, 8)}"


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def trainer_writer(attempt: AttemptId, rank: int, pid: int) -> str:
    """Name of a trainer process as a writer, known from its cursor record alone."""
    return f"trainer-{attempt}-r{rank}-p{pid}"


def agent_writer(attempt: AttemptId, node: int, pid: int) -> str:
    """Name of an agent process as a writer."""
    return f"agent-{attempt}-n{node}-p{pid}"


@dataclass(frozen=True, slots=True)
class JobContext:
    """What a submission tells its trainer, in the variable ``ETT_JOB``. It holds no secret.

    ``resume`` is ``auto``, ``never`` or a checkpoint's URI; ``inherit`` the checkpoint that a
    former generation left, taken by ``auto`` while this one has none; ``init_from`` weights only.
    ``hwm`` is the high-water mark inherited with it. ``epoch`` is the launcher's claim.
    ``resume_cursor`` is where the launcher saw a committed checkpoint of this very job when it
    submitted, 0 where it saw none. ``failures_per_hour`` is how often a training like this one is
    interrupted, by the launcher's history; None where that is not known. ``log`` is the place where
    the job's log lies, as :func:`airflow_ett.storage.open_storage` takes it: what is written in
    ``run_dir``, a folder of the node's own, is sent there. Empty: all share ``run_dir``.
    ``cache`` is the folder or URI of what trainings of this DAG leave for later ones; empty:
    nothing is kept.
    """

    key: JobKey
    submission: int
    run_dir: str
    checkpoints: str
    epoch: int
    resume: str = "auto"
    inherit: str | None = None
    init_from: str | None = None
    hwm: int = 0
    grace_s: float = 30.0
    resume_cursor: int = 0
    failures_per_hour: float | None = None
    log: str = ""
    cache: str = ""

    def encode(self) -> str:
        """Return the context as base64url text without padding: no comma, no quote, no newline."""
        text = json.dumps({"v": 1, **asdict(self)}, separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> JobContext:
        """Return the context in ``text``; unknown fields are skipped.

        Raises :class:`EventLogError` when it is none.
        """
        try:
            padded = text + "=" * (-len(text) % 4)
            fields: dict[str, Any] = json.loads(base64.urlsafe_b64decode(padded))
            key = JobKey(**fields["key"])
            known = {name: fields[name] for name in cls.__slots__ if name in fields}
            return cls(**{**known, "key": key})
        except (ValueError, KeyError, TypeError, binascii.Error) as error:
            raise EventLogError(f"ETT_JOB holds no job context: {error!r}") from error
