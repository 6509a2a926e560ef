"""Who holds a checkpoint directory, and who may take it from whom.

=================================  =================================================
the lease that is there            what a trainer that comes may do
=================================  =================================================
none                               take it
same job, earlier launch           take it at once, whether the holder lives or not
same job and launch, taken before  take it at once, likewise
same job and launch, taken after   nothing: it is superseded
same job, later launch             nothing: it is superseded
another job, alive or silent       nothing: the directory is that job's
unreadable, alive                  nothing: somebody whom nobody knows is at work
unreadable, silent                 take it
=================================  =================================================

**The launch orders trainers**: submission, then the scheduler's restart of it. Within one launch
whoever comes later goes on. Elastic restarts would not do: torchrun counts them anew when a
container is started again in place, and never runs two of them at a time. Nor would the launcher's
claim: adopting a trainer that runs raises it, and a requeue starts another under the same one.

**A directory belongs to one job for good.** Each has its own (in its run directory, or below the
``checkpoint_uri``), and a URI to resume from is only read. So whoever meets another job's lease is
misconfigured, and each would remove the other's checkpoints; silence only changes the advice.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

from airflow_ett.events import AttemptId

SILENT_AFTER_S = 120.0
"""Without a heartbeat for so long a holder counts as silent: a dozen beats, and as much as clocks
may differ where a file system stamps files with its clients' clocks instead of its own."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A trainer as its lease tells it; ``since`` is a time of its own clock, for people alone."""

    job: str
    name: str
    attempt: AttemptId
    host: str
    pid: int
    since: str

    def encode(self, mark: str = "") -> bytes:
        """Return the holder as JSON, with a mark that tells it from others that look alike."""
        return json.dumps({"v": 1, **asdict(self), "mark": mark}).encode()

    @classmethod
    def decode(cls, content: bytes) -> Holder | None:
        """Return the holder in ``content``, None where it cannot be read."""
        try:
            fields: dict[str, Any] = json.loads(content)
            return cls(
                job=str(fields["job"]),
                name=str(fields["name"]),
                attempt=AttemptId(*(int(number) for number in fields["attempt"])),
                host=str(fields["host"]),
                pid=int(fields["pid"]),
                since=str(fields["since"]),
            )
        except (ValueError, KeyError, TypeError):
            return None

    def __str__(self) -> str:
        place = f"process {self.pid} on {self.host} since {self.since}"
        return f"attempt {self.attempt} of job {self.name} ({place})"


class Found(NamedTuple):
    """A lease as found: its holder, None where unreadable, and how long it has been silent."""

    holder: Holder | None
    silent_s: float

    @property
    def alive(self) -> bool:
        """Whether its heartbeat is recent, or lies ahead."""
        return self.silent_s < SILENT_AFTER_S

    def __str__(self) -> str:
        who = self.holder or "somebody whose lease cannot be read"
        return f"{who}, last sign of life {max(0.0, self.silent_s):.0f} s ago"


def launch(attempt: AttemptId) -> tuple[int, int]:
    """Return what orders attempts whoever started them: submission and scheduler's restart."""
    return attempt.submission, attempt.scheduler_restart


class Ruling(Enum):
    """What a trainer may do about a lease."""

    TAKE = auto()
    SUPERSEDED = auto()
    REFUSED = auto()


def rule(mine: Holder, found: Found | None, *, after_mine: bool) -> Ruling:
    """Return what ``mine`` may do where it has found this lease, or none.

    ``after_mine`` says that it was taken after one of its own.
    """
    if found is None:
        return Ruling.TAKE
    if found.holder is None:
        return Ruling.REFUSED if found.alive else Ruling.TAKE
    if found.holder.job != mine.job:
        return Ruling.REFUSED
    theirs, own = launch(found.holder.attempt), launch(mine.attempt)
    return Ruling.SUPERSEDED if theirs > own or (theirs == own and after_mine) else Ruling.TAKE
