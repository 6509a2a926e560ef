"""How long a failed training stood still: from the trainer's death to the next trainer's start."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from airflow_ett.events import AttemptId, Event, Kind


class RetryLatency(NamedTuple):
    """One failure's retry latency in nanoseconds; the four parts sum to :attr:`total_ns`.

    ``detection_ns`` from the trainer's death to the launcher's verdict, ``decision_ns`` from there
    to the new submission (Airflow's retry or the relaunch), ``scheduler_ns`` until the agent's
    process started, ``agent_ns`` until the trainer's.
    """

    attempt: AttemptId
    cause: str
    layer: str
    detection_ns: int
    decision_ns: int
    scheduler_ns: int
    agent_ns: int

    @property
    def total_ns(self) -> int:
        """Trainer's death to the next trainer's start."""
        return self.detection_ns + self.decision_ns + self.scheduler_ns + self.agent_ns


def retry_latencies(events: Iterable[Event]) -> list[RetryLatency]:
    """Return the latency of every failure that was followed by a trainer of a later submission.

    A failure that lacks one of its five moments is left out.
    """
    moments: dict[tuple[AttemptId, str], Event] = {}
    for event in sorted(events, key=lambda event: event.time_ns):
        if event.attempt is not None and event.rank in (None, 0):
            name = f"{event.kind}:{event.data.get('role', '')}"
            moments.setdefault((event.attempt, name), event)
    attempts = sorted({attempt for attempt, _ in moments})
    found = (_latency(moments, old, new) for old, new in itertools.pairwise(attempts))
    return [latency for latency in found if latency]


def _latency(
    moments: dict[tuple[AttemptId, str], Event], old: AttemptId, new: AttemptId
) -> RetryLatency | None:
    died = moments.get((old, f"{Kind.PROCESS_ENDED}:trainer"))
    judged = moments.get((old, f"{Kind.ATTEMPT_ENDED}:"))
    submitted = moments.get((new, f"{Kind.SUBMITTED}:"))
    agent = moments.get((new, f"{Kind.PROCESS_STARTED}:agent"))
    trainer = moments.get((new, f"{Kind.PROCESS_STARTED}:trainer"))
    if not (died and judged and submitted and agent and trainer):
        return None
    return RetryLatency(
        attempt=old,
        cause=str(judged.data.get("cause")),
        layer=str(submitted.data.get("layer")),
        detection_ns=judged.time_ns - died.time_ns,
        decision_ns=submitted.time_ns - judged.time_ns,
        scheduler_ns=agent.time_ns - submitted.time_ns,
        agent_ns=trainer.time_ns - agent.time_ns,
    )
