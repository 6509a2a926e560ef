"""What a run tells: a training's story line by line, and the tally."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_ett.events import Event, Kind
from tests.system.chaos.driver import Drive
from tests.system.chaos.invariants import CHECKS

ORPHANS = "orphans"
_TOLD = (
    *(Kind.CLAIMED, Kind.ADOPTED, Kind.SUBMIT_INTENDED, Kind.SUBMITTED, Kind.SCHEDULER_STATE),
    *(Kind.CANCEL_REQUESTED, Kind.USER_RESTART, Kind.ATTEMPT_ENDED, Kind.JOB_ENDED),
    *(Kind.AIRFLOW_STATE, Kind.SESSION_STARTED, Kind.SESSION_ENDED, Kind.RESUMED),
)
_SHOWN = ("mode", "try", "max_tries", "owner", "submission", "layer", "state", "raw", "reason")
_MORE = ("cause", "evidence", "by", "outcome", "cursor", "text")


def story(done: Drive) -> list[str]:
    """Return what happened to a training, with seconds since its first event."""
    events = done.view.events(*_TOLD)
    lines = [(event.time_ns, _line(event)) for event in events]
    for blow in done.blows:
        pids = f", pids {blow.pids}" if blow.pids else ""
        opened = "" if blow.opened else ", its window did not open"
        text = f"--- {blow.injection}{opened}: submission {blow.submission}{pids}"
        lines.append((blow.time_ns, text))
    begin, end = min((time_ns for time_ns, _ in lines), default=0), max(lines, default=(0, ""))[0]
    for blow in done.beside:
        if begin <= blow.time_ns <= end:
            lines.append((blow.time_ns, f"... {blow.injection}, for another training"))
    return [f"  {(time_ns - begin) / 1e9:8.2f}  {text}" for time_ns, text in sorted(lines)]


def tally(
    drives: Sequence[Drive],
    found: Mapping[str, Sequence[str]],
    reaped: int,
    wall_s: float,
    seed: int,
) -> str:
    """Return the run's last line."""
    blows = sum(len(done.blows) for done in drives)
    missed = sum(len(done.missed) for done in drives)
    counts = ", ".join(f"{len(found.get(name, ()))} {name}" for name in [ORPHANS, *CHECKS])
    verdict = "FAILED" if any(found.values()) else "passed"
    return (
        f"chaos {verdict}: {blows} injections into {len(drives)} trainings in {wall_s:.0f} s, "
        f"seed {seed}; {counts}; {reaped} reaped, {missed} without a victim"
    )


def by_target(drives: Sequence[Drive]) -> str:
    """Return how often each target was hit."""
    counts = Counter(str(blow.injection.target) for done in drives for blow in done.blows)
    return ", ".join(f"{count} {target}" for target, count in sorted(counts.items()))


def _line(event: Event) -> str:
    shown: list[Any] = [f"{name}={event.data[name]}" for name in _SHOWN if name in event.data]
    shown += [f"{name}={event.data[name]}" for name in _MORE if event.data.get(name)]
    attempt = f" {event.attempt}" if event.attempt else ""
    return f"{event.kind}{attempt} by {event.writer}: {' '.join(shown)}"
