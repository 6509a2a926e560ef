"""The exact partition of an attempt's time into spans."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from airflow_ett.events import Event, Kind
from airflow_ett.metric.attempts import Attempt
from airflow_ett.metric.endings import SKEW_NS, Outcome
from airflow_ett.metric.evidence import Notes
from airflow_ett.metric.gaps import Marks, gaps
from airflow_ett.metric.job import Job
from airflow_ett.metric.lanes import MAIN, last_session, read_lanes, session_end, stalled
from airflow_ett.metric.phases import Phase
from airflow_ett.metric.progress import Claim, Interval, Walk, read_intervals, walk
from airflow_ett.metric.result import Span


@dataclass(frozen=True, slots=True)
class Timeline:
    """One attempt's spans: ``main`` partitions ``[begin_ns, stop_ns)``; ``beside`` never sums.

    ``loop_ns`` is the first request for a batch: the training loop begins there. ``over_ns`` is the
    end of training in an attempt that ended well, None where nothing tells it.
    """

    attempt: Attempt
    main: tuple[Span, ...]
    beside: tuple[Span, ...]
    walk: Walk
    loop_ns: int | None
    over_ns: int | None


def trace(attempt: Attempt, job: Job, hwm: int, notes: Notes) -> Timeline:
    """Partition the attempt's time, with ``hwm`` the high-water mark at its begin.

    Until the last rank's first step begins, the partition follows that rank; then the main rank.
    """
    ranks = attempt.evidence.ranks
    intervals = {r: read_intervals(events, attempt.id, notes) for r, events in ranks.items()}
    main = attempt.evidence.main_rank
    leader, lead_until = _leader(intervals, main)
    walked = walk(intervals[main], hwm, attempt.id, notes) if main is not None else Walk(hwm)
    claims = stalled(attempt)
    beside: list[Span] = []
    for rank, events in ranks.items():
        for lane in read_lanes(attempt, events, intervals[rank], notes):
            if lane.name != MAIN:
                beside += _spans(attempt, [lane.claim], lane.name)
            elif rank == main:
                claims += _cut([lane.claim], lead_until)
            elif rank == leader:
                claims += _cut([lane.claim], 0, lead_until)
    claims += _cut(walked.claims, lead_until)
    _note_outside(attempt, claims, notes)
    marks = _marks(attempt, ranks.get(leader, []), intervals.get(leader, []), main)
    claims += gaps(attempt, job, marks, notes)
    return Timeline(
        attempt=attempt,
        main=_spans(attempt, _innermost(_cut(claims, attempt.begin_ns, attempt.stop_ns)), MAIN),
        beside=tuple(sorted(beside)),
        walk=walked,
        loop_ns=marks.loop_ns,
        over_ns=marks.over_ns,
    )


def _leader(intervals: dict[int, list[Interval]], main: int | None) -> tuple[int, int]:
    """Return the rank whose first step began last, and when; the main rank leads from 0 on."""
    firsts = [(found[0].begin_ns, -rank) for rank, found in intervals.items() if found]
    if not firsts or main is None:
        return (main or 0), 0
    begin, rank = max(firsts)
    return (main, 0) if -rank == main else (-rank, begin)


def _marks(
    attempt: Attempt, events: list[Event], intervals: list[Interval], main: int | None
) -> Marks:
    started = [event.time_ns for event in events if event.kind == Kind.SESSION_STARTED]
    batches = [
        event.time_ns
        for event in events
        if event.kind == Kind.PHASE_BEGIN and event.data.get("phase") == Phase.FIRST_BATCH
    ]
    batches += [interval.begin_ns for interval in intervals[:1]]
    over = None
    if attempt.outcome is Outcome.SUCCESS and main is not None:
        mine = attempt.evidence.ranks[main]
        over = session_end(mine)
        closing = [
            event.time_ns
            for event in mine
            if event.kind == Kind.PHASE_BEGIN
            and event.data.get("phase") == Phase.SHUTDOWN
            and event.time_ns >= last_session(mine)
        ]
        over = min([*closing, *([] if over is None else [over])], default=None)
    return Marks(
        session_ns=min(started or [event.time_ns for event in events], default=None),
        loop_ns=min(batches, default=None),
        over_ns=over,
    )


def _cut(claims: Iterable[Claim], begin: int, stop: int | None = None) -> list[Claim]:
    kept = []
    for claim in claims:
        start = max(claim.begin_ns, begin)
        end = claim.end_ns if stop is None else min(claim.end_ns, stop)
        if start < end:
            kept.append(Claim(start, end, claim.phase, claim.opened_ns))
    return kept


def _note_outside(attempt: Attempt, claims: list[Claim], notes: Notes) -> None:
    early = min((claim.begin_ns for claim in claims), default=attempt.begin_ns)
    late = max((claim.end_ns for claim in claims), default=attempt.stop_ns)
    if early < attempt.begin_ns - SKEW_NS or late > attempt.stop_ns + SKEW_NS:
        notes.add(f"attempt {attempt.id} tells of time outside of its own: clocks disagree")


def _innermost(claims: list[Claim]) -> list[Claim]:
    """Return disjoint claims in order of time; of overlapping ones the innermost is kept."""
    claims.sort()
    active: list[tuple[int, int, str]] = []
    result: list[Claim] = []
    at = index = 0
    while index < len(claims) or active:
        if not active:
            at = max(at, claims[index].begin_ns)
        while index < len(claims) and claims[index].begin_ns <= at:
            claim = claims[index]
            heapq.heappush(active, (-claim.opened_ns, claim.end_ns, claim.phase))
            index += 1
        while active and active[0][1] <= at:
            heapq.heappop(active)
        if active:
            opened, end, phase = active[0]
            if index < len(claims):
                end = min(end, claims[index].begin_ns)
            result.append(Claim(at, end, phase, -opened))
            at = end
    return result


def _spans(attempt: Attempt, claims: list[Claim], lane: str) -> tuple[Span, ...]:
    spans: list[Span] = []
    for claim in claims:
        last = spans[-1] if spans else None
        if last and (last.end_ns, last.phase) == (claim.begin_ns, claim.phase):
            spans[-1] = last._replace(end_ns=claim.end_ns)
        else:
            phase = str(claim.phase)
            spans.append(Span(claim.begin_ns, claim.end_ns, phase, attempt.id, lane))
    return tuple(spans)
