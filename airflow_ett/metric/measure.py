"""One job's events in, its numbers out. A pure function: no clock, no file, no order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from airflow_ett.events import Event, JobState, Kind
from airflow_ett.metric import ledger
from airflow_ett.metric.attempts import Attempt, settle
from airflow_ett.metric.endings import Outcome, verdict
from airflow_ett.metric.evidence import Evidence, Notes, gather, in_order, text
from airflow_ett.metric.held import held
from airflow_ett.metric.job import Job, read_job
from airflow_ett.metric.levels import Levels, position
from airflow_ett.metric.phases import COMPONENTS, component_of, is_known
from airflow_ett.metric.progress import known_hwm
from airflow_ett.metric.result import AttemptMetric, JobMetric, Span
from airflow_ett.metric.timeline import Timeline, trace


class Quality(StrEnum):
    """How much of the job's life the log tells."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    LAUNCHER_ONLY = "launcher_only"


def measure(
    events: Iterable[Event], *, now_ns: int | None = None, last_sign_ns: int | None = None
) -> JobMetric:
    """Return the numbers of the job whose events these are, in any order, copies allowed.

    ``now_ns`` is the present (None: the newest event's time) and ``last_sign_ns`` the newest
    heartbeat that the caller saw; both matter only until the job's terminal event is in. Whatever
    the log lacks or contradicts is told in ``quality_reasons``; nothing raises.
    """
    notes: Notes = set()
    ordered = in_order(events, notes)
    job = read_job(ordered, notes)
    seen = gather(ordered, notes)
    attempts = settle(seen, job, ordered, notes, now_ns=now_ns, last_sign_ns=last_sign_ns)
    timelines = _trace_all(attempts, job, notes)
    begin = attempts[0].begin_ns if attempts else job.newest_ns
    end = attempts[-1].stop_ns if attempts else begin
    levels = position(timelines, begin, end)
    components = _components(timelines, notes)
    return JobMetric(
        **_identity(job),
        **_quality(job, notes),
        begin_ns=begin,
        end_ns=end,
        **_ratios(job, levels, end - begin, held(timelines)),
        **_failures(attempts, levels),
        phases_ns=_phases(span for timeline in timelines for span in timeline.main),
        components_ns=components,
        levels_ns=levels.as_dict(),
        attempts=tuple(_attempt(timeline) for timeline in timelines),
        compiles=ledger.compiles(seen),
        **_savings(seen, timelines, job),
        cause=_cause(job, attempts),
        spans=tuple(span for timeline in timelines for span in (*timeline.main, *timeline.beside)),
    )


def _trace_all(attempts: list[Attempt], job: Job, notes: Notes) -> list[Timeline]:
    timelines: list[Timeline] = []
    hwm = job.inherited_hwm
    for attempt in attempts:
        hwm = known_hwm(attempt.evidence.ranks, hwm)
        timelines.append(trace(attempt, job, hwm, notes))
        hwm = timelines[-1].walk.hwm
    return timelines


def _identity(job: Job) -> dict[str, Any]:
    return {
        "dag_id": job.key.dag_id,
        "run_id": job.key.run_id,
        "task_id": job.key.task_id,
        "map_index": job.key.map_index,
        "generation": job.key.generation,
        "deployment": job.key.deployment,
        "job": job.id,
        "state": job.state,
        "frozen": job.ended_ns is not None,
        "accelerators": job.accelerators,
        "scheduler": job.scheduler,
        "handle": job.handle,
        "published": job.published,
    }


def _quality(job: Job, notes: Notes) -> dict[str, Any]:
    quality = Quality.PARTIAL if notes else Quality.COMPLETE
    if not job.has_trainer:
        quality = Quality.LAUNCHER_ONLY
        notes.add("no trainer events: no Session ran, or the image lacks airflow_ett")
    return {"quality": quality.value, "quality_reasons": tuple(sorted(notes))}


def _ratios(job: Job, levels: Levels, wall: int, held_ns: int) -> dict[str, Any]:
    def percent(part: int, whole: int) -> float | None:
        return 100 * part / whole if job.has_trainer and whole else None

    return {
        "wall_ns": wall,
        "held_ns": held_ns,
        "effective_ns": levels.effective_ns,
        "ett_pct": percent(levels.effective_ns, wall),
        "ett_pct_held": percent(levels.effective_ns, held_ns),
        "ett_pct_paper": percent(wall - levels.start_ns - levels.recovery_ns, wall),
        "tts_ns": levels.start_ns,
        "ttr": levels.recoveries,
    }


def _failures(attempts: list[Attempt], levels: Levels) -> dict[str, Any]:
    """Count every interruption that nobody wished for, by cause and by the layer that recovered."""
    by_cause: Counter[str] = Counter()
    by_layer: Counter[str] = Counter()
    followers = [*(str(attempt.layer) for attempt in attempts[1:]), "none"]
    for attempt, layer in zip(attempts, followers, strict=False):
        if attempt.outcome is Outcome.FAILURE:
            by_cause[str(attempt.cause)] += 1
            by_layer[layer] += 1
    return {"nof": by_cause.total(), "nof_by_cause": by_cause, "nof_by_layer": by_layer}


def _phases(spans: Iterable[Span]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for span in spans:
        total[span.phase] += span.end_ns - span.begin_ns
    return dict(total)


def _components(timelines: list[Timeline], notes: Notes) -> dict[str, int]:
    total = dict.fromkeys(COMPONENTS, 0)
    for timeline in timelines:
        for span in timeline.main:
            in_loop = timeline.loop_ns is not None and span.begin_ns >= timeline.loop_ns
            name = component_of(span.phase, in_loop=in_loop)
            total[name] += span.end_ns - span.begin_ns
            if not is_known(span.phase):
                notes.add(f"phase {span.phase} is not a known one")
    return total


def _attempt(timeline: Timeline) -> AttemptMetric:
    attempt, walk = timeline.attempt, timeline.walk
    resumed = ledger.resumed(attempt.evidence, walk)
    hosts = (text(e.data, "host") for e in attempt.evidence.of(Kind.PROCESS_STARTED))
    return AttemptMetric(
        id=attempt.id,
        try_number=attempt.try_number,
        layer=str(attempt.layer),
        cause=None if attempt.cause is None else str(attempt.cause),
        evidence=attempt.proof,
        begin_ns=attempt.begin_ns,
        end_ns=attempt.stop_ns,
        detected_ns=ended.time_ns if (ended := verdict(attempt.evidence)) else None,
        cursor_from=resumed.cursor,
        cursor_to=walk.cursor_to,
        resumed_from=resumed.uri,
        phases_ns=_phases(timeline.main),
        host=next((host for host in hosts if host), None),
    )


def _savings(seen: list[Evidence], timelines: list[Timeline], job: Job) -> dict[str, Any]:
    """NoS, CSBT, UTT and WTT = UTT + NoS x CSBT (the source's formula), and the work at risk."""
    saves = ledger.checkpoints(seen)
    lost, at_risk = ledger.unsaved(seen, [timeline.walk for timeline in timelines], saves)
    blocking = sum(save.blocking_ns or 0 for save in saves)
    return {
        "checkpoints": saves,
        "utt_ns": lost,
        "nos": len(saves),
        "csbt_ns": blocking // len(saves) if saves else 0,
        "wtt_ns": lost + blocking,
        "at_risk_ns": 0 if job.state == JobState.SUCCEEDED else at_risk,
    }


def _cause(job: Job, attempts: list[Attempt]) -> str | None:
    if job.state in (JobState.RUNNING, JobState.SUCCEEDED):
        return None
    cause = job.cause or (attempts[-1].cause if attempts else None)
    return None if cause is None else str(cause)
