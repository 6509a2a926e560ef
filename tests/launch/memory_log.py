"""A job log in memory: what the launcher needs of one, without a run directory."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_ett.errors import Fenced, JobLogError
from airflow_ett.events import AttemptId, CursorRecord, Event, JobKey, Kind
from airflow_ett.launch.joblog import Claim


@dataclass
class Memory:
    """What all owners of a job share."""

    claims: list[Claim] = field(default_factory=list)
    submissions: dict[int, dict[str, Any]] = field(default_factory=dict)
    launcher: list[Event] = field(default_factory=list)
    trainers: list[Event] = field(default_factory=list)
    replies: dict[AttemptId, list[dict[str, Any]]] = field(default_factory=dict)
    shown: dict[int, int] = field(default_factory=dict)


class MemoryLog:
    """One owner's view of a :class:`Memory`."""

    place = "memory:"

    def __init__(self, memory: Memory, key: JobKey) -> None:
        self.memory = memory
        self.key = key
        self._epoch = 0
        self._numbers = itertools.count()

    def redact(self, value: Any) -> Any:
        return value

    def claim(
        self, *, try_number: int, max_tries: int, mode: str, after: int | None = None
    ) -> Claim:
        if after is not None and self.newest() > after:
            raise Fenced("claimed meanwhile")
        claim = Claim(self.newest() + 1, try_number, max_tries, mode)
        self.memory.claims.append(claim)
        self._epoch = claim.epoch
        told = {"epoch": claim.epoch, "owner": "me", "try": try_number, "max_tries": max_tries}
        self.append(Kind.CLAIMED, told | {"mode": mode})
        return claim

    def newest(self) -> int:
        return len(self.memory.claims)

    def check(self, claim: Claim) -> None:
        if self.newest() > claim.epoch:
            raise Fenced(f"claim {self.newest()}, this one is {claim.epoch}")
        if self.newest() < claim.epoch:
            raise JobLogError(f"lost claim {claim.epoch}")

    def intend(self, claim: Claim, submission: int, fields: Mapping[str, Any]) -> Event:
        self.check(claim)
        if submission in self.memory.submissions:
            raise Fenced(f"submission {submission} is being made elsewhere")
        self.memory.submissions[submission] = {"epoch": claim.epoch, **fields}
        return self.append(Kind.SUBMIT_INTENDED, {"submission": submission, **fields})

    def append(
        self,
        kind: str,
        data: Mapping[str, Any] | None = None,
        *,
        time_ns: int | None = None,
        attempt: AttemptId | None = None,
    ) -> Event:
        if not self._epoch:
            raise JobLogError("not claimed")
        event = Event(
            job=self.key.id,
            writer=f"launcher-{self._epoch}",
            seq=next(self._numbers),
            time_ns=time.time_ns() if time_ns is None else time_ns,
            kind=kind,
            attempt=attempt,
            data=dict(data or {}),
        )
        self.memory.launcher.append(event)
        return event

    def copy(self, event: Event) -> None:
        self.memory.launcher.append(replace(event))

    def launcher_events(self) -> list[Event]:
        return list(self.memory.launcher)

    def intents(self) -> dict[int, dict[str, Any]]:
        return dict(self.memory.submissions)

    def submission_events(self, submission: int) -> list[Event]:
        return [e for e in self.memory.trainers if e.attempt and e.attempt.submission == submission]

    def replies(self, attempt: AttemptId) -> list[dict[str, Any]]:
        return self.memory.replies.get(attempt, [])

    def replied(self, submission: int, restart: int) -> bool:
        return any(a[:2] == (submission, restart) for a in self.memory.replies)

    def cursor(self) -> CursorRecord | None:
        return None

    def heartbeat_ns(self) -> int | None:
        return None

    def shown(self, submission: int) -> int:
        return self.memory.shown.get(submission, 0)

    def note_shown(self, submission: int, offset: int) -> None:
        self.memory.shown[submission] = offset
