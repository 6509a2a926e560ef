"""The logs that the API holds, page by page."""

from __future__ import annotations

from airflow_ett.events import AttemptId, Event, decode
from airflow_ett.store import Store
from airflow_ett.store.append import Appender
from airflow_ett.store.logged import page

JOB = "0123456789abcdef0123"


def _event(writer: str, seq: int, submission: int | None = 1, **data: object) -> Event:
    attempt = None if submission is None else AttemptId(submission)
    return Event(JOB, writer, seq, 10**18, "note", attempt, data=data)


def _pages(store: Store, folder: str, **options: int | None) -> list[list[Event]]:
    pages, after = [], None
    while True:
        found = page(store, JOB, folder, after=after, **options)  # type: ignore[arg-type]
        pages.append([decode(line) for line in found.lines.splitlines()])
        after = found.last
        if after is None:
            return pages


def test_a_page_ends_after_a_number_of_events_or_of_bytes(store: Store) -> None:
    events = [_event(writer, seq, text="x" * 1000) for writer in "ab" for seq in range(5)]
    Appender(store).append(JOB, events)
    for pages, lengths in (
        (_pages(store, "nodes"), [10]),
        (_pages(store, "nodes", events=10), [10]),
        (_pages(store, "nodes", events=4), [4, 4, 2]),
        (_pages(store, "nodes", events=1), [1] * 10),
        (_pages(store, "nodes", size=2500), [3, 3, 3, 1]),
        (_pages(store, "nodes", size=0), [1] * 10),
    ):
        assert [len(one) for one in pages] == lengths
        assert [event for one in pages for event in one] == events
    assert _pages(store, "launcher") == [[]]


def test_launchers_come_in_the_order_of_their_epochs(store: Store) -> None:
    events = [_event(f"launcher-{n}", seq) for n in (2, 10, 100) for seq in range(3)]
    Appender(store).append(JOB, [*reversed(events), _event("Launcher-1", 0), _event("launch", 0)])
    for size in (1, 2, 100):
        found = [event for one in _pages(store, "launcher", events=size) for event in one]
        assert found == events


def test_a_submissions_events_alone(store: Store) -> None:
    events = [_event("a", seq, seq % 3 or None) for seq in range(9)]
    Appender(store).append(JOB, events)
    assert _pages(store, "nodes", submission=2) == [[events[2], events[5], events[8]]]
    assert _pages(store, "nodes", submission=7) == [[]]
