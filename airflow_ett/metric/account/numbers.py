"""From the account of all attempts to the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from airflow_ett.events import JobState
from airflow_ett.metric.account.account import Account, by_phase
from airflow_ett.metric.account.saves import Saves
from airflow_ett.metric.account.stretches import booked_by_all, union
from airflow_ett.metric.account.windows import windows
from airflow_ett.metric.clock.job import Job
from airflow_ett.metric.evidence.fields import Notes
from airflow_ett.metric.phases import Components
from airflow_ett.metric.result import Booked, JobMetric, Lazy, Recovery
from airflow_ett.metric.timeline.trace import Stretch


class Quality(StrEnum):
    """How much of the job's life the log tells."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    LAUNCHER_ONLY = "launcher_only"


def numbers(
    job: Job, account: Account, saves: Saves, components: Components, notes: Notes
) -> JobMetric:
    """Return the numbers of a job whose attempts are all in the account."""
    timelines, levels, excluded = account.timelines, account.levels, account.excluded
    begin = timelines[0].attempt.begin_ns if timelines else job.newest_ns
    end = timelines[-1].attempt.stop_ns if timelines else begin
    total: Booked = sum(levels.booked.values(), Counter())
    phases = by_phase(total)
    held = booked_by_all(timelines, union(account.held(), begin, end), account.excluded_in)
    notes = notes | account.notes
    if account.unsaved.split:
        notes.add("an attempt went on from within an interval of many steps: UTT split pro rata")
    notes |= {f"phase {name} is not a known one" for name in phases if not components.knows(name)}
    advance = account.first_advance_ns
    started = advance if advance is None else advance - begin - _length(excluded, begin, advance)
    return JobMetric(
        **_identity(job),
        **_quality(job, notes),
        begin_ns=begin,
        end_ns=end,
        excluded_ns=_length(excluded, begin, end),
        **_ratios(job, levels.as_dict(), total.total(), held.total()),
        time_to_first_advance_ns=started,
        ttr=_recoveries(account),
        **_failures(account),
        phases_ns=phases,
        components_ns=_by_component(total, components),
        held_components_ns=_by_component(held, components),
        levels_ns=levels.as_dict(),
        positions_ns={bucket: by_phase(found) for bucket, found in levels.booked.items()},
        windows=windows(account, begin, end, components, measured=job.has_trainer),
        current_phase=timelines[-1].last_phase if timelines and job.ended_ns is None else None,
        progress_ns=account.progress_ns,
        attempts=tuple(account.attempts),
        checkpoints=tuple(saves.rows),
        compiles=tuple(account.compiles),
        **_savings(job, account, saves),
        cause=_cause(job, account),
        spans=Lazy([timeline.spans for timeline in timelines]),
        lanes=Lazy([timeline.lane for timeline in timelines]),
        progress=Lazy([timeline.progress for timeline in timelines]),
    )


def _length(stretches: Sequence[Stretch], begin_ns: int, end_ns: int) -> int:
    return sum(end - begin for begin, end in union(stretches, begin_ns, end_ns))


def _by_component(found: Booked, components: Components) -> dict[str, int]:
    total = dict.fromkeys(components, 0)
    for booking, ns in found.items():
        total[booking.component] += ns
    return total


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
        "released_ns": sum(one.released_ns for one in job.published),
    }


def _quality(job: Job, notes: Notes) -> dict[str, Any]:
    quality = Quality.PARTIAL if notes else Quality.COMPLETE
    if not job.has_trainer:
        quality = Quality.LAUNCHER_ONLY
        notes = notes | {"no trainer events: no Session ran, or the image lacks airflow_ett"}
    return {"quality": quality.value, "quality_reasons": tuple(sorted(notes))}


def _ratios(job: Job, buckets: dict[str, int], wall: int, held: int) -> dict[str, Any]:
    def percent(part: int, whole: int) -> float | None:
        return 100 * part / whole if job.has_trainer and whole else None

    return {
        "wall_ns": wall,
        "held_ns": held,
        "effective_ns": buckets["effective"],
        "ett_pct": percent(buckets["effective"], wall),
        "ett_pct_held": percent(buckets["effective"], held),
        "ett_pct_paper": percent(wall - buckets["start"] - buckets["recovery"], wall),
        "tts_ns": buckets["start"],
    }


def _recoveries(account: Account) -> tuple[Recovery, ...]:
    return tuple(
        Recovery(
            ns=one.ns,
            recovered=one.advanced,
            cause=account.attempts[one.attempt].cause or "",
            layer=account.follower(one.attempt),
            attempt=account.attempts[one.attempt].id,
            utt_ns=account.unsaved.lost[one.attempt],
        )
        for one in account.levels.recoveries
    )


def _failures(account: Account) -> dict[str, Any]:
    """Count every interruption that nobody wished for, by cause and by the layer that recovered."""
    by_cause = Counter(cause for _, cause in account.failures)
    by_layer = Counter(account.follower(number) for number, _ in account.failures)
    return {"nof": len(account.failures), "nof_by_cause": by_cause, "nof_by_layer": by_layer}


def _savings(job: Job, account: Account, saves: Saves) -> dict[str, Any]:
    """NoS, CSBT, UTT and WTT = UTT + NoS x CSBT (the source's formula), and the work at risk."""
    count, told, lost = len(saves.rows), saves.told_blocking, account.unsaved.lost.total()
    succeeded = job.state == JobState.SUCCEEDED
    return {
        "utt_ns": lost,
        "nos": count,
        "csbt_ns": saves.blocking_ns // told if told else 0,
        "wtt_ns": lost + saves.blocking_ns,
        "at_risk_ns": 0 if succeeded else account.unsaved.at_risk_ns(saves),
    }


def _cause(job: Job, account: Account) -> str | None:
    if job.state in (JobState.RUNNING, JobState.SUCCEEDED):
        return None
    cause = job.cause or (account.attempts[-1].cause if account.attempts else None)
    return None if cause is None else str(cause)
