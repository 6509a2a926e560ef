"""What one more event costs: the same, however long the job is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from airflow_ett.events import AttemptId, Event
from airflow_ett.metric import Fold, measure
from airflow_ett.metric.evidence.rows import Rows
from airflow_ett.metric.timeline.track import Track

FIRST = AttemptId(1)


def event(seq: int, time: int, kind: str, **data: Any) -> Event:
    return Event("j", "t", seq, time, kind, FIRST, 0, data)


def interval(seq: int, begin: int, cursor: int) -> Event:
    lengths = {"wait_ns": 1, "step_ns": 8, "other_ns": 1, "steps": 1}
    cursors = {"cursor_from": cursor, "cursor_to": cursor + 1}
    return event(
        seq, begin + 10, "interval", **{"from": begin, "to": begin + 10}, **lengths | cursors
    )


def training(count: int, outer: str | None = None) -> Iterator[Event]:
    """Steps on new data, a save every 50; phase ``outer`` is open all the while."""
    seq, now = 1, 0
    yield event(0, 0, "session_started")
    if outer:
        yield event(1, 0, "phase_begin", span="outer", phase=outer)
        seq, now = 2, 4
    for number in range(count):
        yield interval(seq, now, number)
        seq, now = seq + 1, now + 10
        if number % 50 == 49:
            yield event(seq, now, "phase_begin", span=str(seq), phase="checkpoint_save")
            yield event(seq + 1, now + 5, "phase_end", span=str(seq))
            saved = {"checkpoint": f"c{number}", "cursor": number, "blocking_ns": 5}
            yield event(seq + 2, now + 5, "checkpoint_saved", **saved)
            seq, now = seq + 3, now + 5


class Meter:
    """Counts rows that are looked at, function calls, and tracks that start over."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.rows = self.calls = self.starts = 0
        between, start = Rows.between, Track._start

        def counted(rows: Rows, first: int, end: int) -> Iterator[tuple[int, ...]]:
            for row in between(rows, first, end):
                self.rows += 1
                yield row

        def started(track: Track, *course: Any) -> None:
            self.starts += 1
            start(track, *course)

        patch.setattr(Rows, "between", counted)
        patch.setattr(Track, "_start", started)

    def of(self, fold: Fold, news: list[Event]) -> tuple[int, int, int]:
        """Rows, calls and starts that the news and a look cost."""
        self.rows = self.calls = self.starts = 0

        def call(frame: FrameType, what: str, _: object) -> None:
            self.calls += what in ("call", "c_call")

        sys.setprofile(call)
        try:
            fold.add(news)
            fold.measure()
        finally:
            sys.setprofile(None)
        return self.rows, self.calls, self.starts


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    return Meter(monkeypatch)


def news(events: list[Event]) -> dict[str, list[Event]]:
    """What may come next in order."""
    seq, now = events[-1].seq + 1, max(one.time_ns for one in events)
    count = sum(one.kind == "interval" for one in events)
    save = {"checkpoint": "c", "cursor": count, "blocking_ns": 0}
    return {
        "an interval": [interval(seq, now, count)],
        "a phase": [
            event(seq, now, "phase_begin", span="new", phase="evaluation"),
            event(seq + 1, now + 5, "phase_end", span="new"),
        ],
        "a save": [event(seq, now, "checkpoint_saved", **save)],
        "a copy": [events[-1]],
        "nothing": [],
    }


@pytest.mark.parametrize("what", ["an interval", "a phase", "a save", "a copy", "nothing"])
def test_one_more_event_costs_the_same_however_long_the_job_is(meter, what) -> None:
    costs = []
    for count in (1_001, 20_001):
        events = [*training(count)]
        fold = Fold()
        fold.add(events)
        fold.measure()
        costs.append(meter.of(fold, news(events)[what]))
    (rows, calls, _), (rows_later, calls_later, starts) = costs
    assert rows_later == rows <= 5
    # Searches take a few calls more among more rows.
    assert calls <= calls_later <= calls + 80
    assert starts == 0


def test_an_interval_that_grows_costs_the_same_however_long_the_job_is(meter) -> None:
    costs = []
    for count in (1_001, 20_001):
        events = [*training(count)]
        fold = Fold()
        fold.add(events)
        fold.measure()
        grown = interval(events[-1].seq, events[-1].data["from"], count - 1)
        grown.data.update({"to": grown.time_ns + 5, "step_ns": 13, "cursor_to": count + 1})
        grown = Event("j", "t", grown.seq, grown.time_ns + 5, grown.kind, FIRST, 0, grown.data)
        costs.append(meter.of(fold, [grown]))
        assert fold.measure() == measure([*events, grown])
    (rows, calls, _), (rows_later, calls_later, starts) = costs
    assert rows_later == rows <= 5
    assert calls <= calls_later <= calls + 80
    assert starts == 0


def test_a_phase_that_stays_open_does_not_make_each_look_longer(meter) -> None:
    """After some thousands of intervals it is presumed over; should it end after all, so it is."""
    events = [*training(5_001, "evaluation")]
    fold = Fold()
    at = 0
    for until in (1_500, 2_500, 4_000, len(events)):
        fold.add(events[at:until])
        at = until
        assert fold.measure() == measure(events[:until])
    rows, _, starts = meter.of(fold, news(events)["an interval"])
    assert rows <= 5
    assert starts == 0
    events += news(events)["an interval"]
    assert fold.measure() == measure(events)
    end = event(events[-1].seq + 1, events[-1].time_ns + 7, "phase_end", span="outer")
    assert meter.of(fold, [end])[2] == 1
    whole = measure([*events, end])
    assert fold.measure() == whole
    assert whole.as_dict() == fold.measure().as_dict()
    assert whole.phases_ns["evaluation"] > 0


def test_an_open_phase_that_was_presumed_over_may_end_before_it_began(meter) -> None:
    events, at = [*training(3_001)], 500
    began = events[at].time_ns - 3
    data = {"span": "u", "phase": "evaluation"}
    opened = Event("j", "u", 0, began, "phase_begin", FIRST, 0, data)
    closed = Event("j", "u", 1, 7, "phase_end", FIRST, 0, {"span": "u"})
    fold = Fold()
    for news in (events[:at], [opened], events[at:], [closed]):
        fold.add(news)
        fold.measure()
    wanted = measure([*events, opened, closed])
    assert fold.measure() == wanted
    assert "phase evaluation of attempt 1.0.0 ends before it begins" in wanted.quality_reasons


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("phase", {"phase": "evaluation"}),
        ("phase", {"phase": "first_batch"}),
        ("interval", {"cursor_from": 0, "cursor_to": 900}),
        ("stalled", {"begin": 103, "end": 137}),
        ("session_started", {"cursor_hwm": 500}),
        ("resumed", {"cursor": 3, "hwm": 50}),
        ("process_started", {"host": "n1"}),
    ],
)
def test_late_news_of_the_past_are_folded_in(meter, kind, data) -> None:
    events = [*training(300)]
    fold = Fold()
    for at in range(0, len(events), 100):
        fold.add(events[at : at + 100])
        fold.measure()
    if kind == "phase":
        late = [
            Event("j", "late", 0, 95, "phase_begin", FIRST, 0, {"span": "late", **data}),
            Event("j", "late", 1, 135, "phase_end", FIRST, 0, {"span": "late"}),
        ]
    elif kind == "interval":
        fields = {**interval(0, 95, 0).data, **data}
        late = [Event("j", "late", 0, 105, kind, FIRST, 0, fields)]
    else:
        late = [Event("j", "late", 0, 0, kind, FIRST, 0, data)]
    before = fold.measure()
    assert meter.of(fold, late)[2] <= 1
    after, wanted = fold.measure(), measure([*events, *late])
    assert after == wanted
    assert after.as_dict() == wanted.as_dict()
    assert after.as_dict() != before.as_dict()
