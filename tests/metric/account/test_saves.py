"""The checkpoints: which save a commit belongs to, and portions that change nothing."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.events import AttemptId, Event
from airflow_ett.metric.account.saves import Saves
from airflow_ett.metric.evidence.attempt import Evidence

FIRST, SECOND = AttemptId(1), AttemptId(2)
SAVED, COMMITTED = "checkpoint_saved", "checkpoint_committed"


def told(attempt: AttemptId, *saves: tuple[int, str, str, int | None]) -> Evidence:
    evidence = Evidence(attempt)
    for seq, (time, kind, uri, cursor) in enumerate(saves):
        fields = {"checkpoint": uri, "cursor": cursor, "blocking_ns": 2, "upload_ns": 3, "bytes": 4}
        evidence.add(Event("j", f"t{attempt}", seq, time, kind, attempt, 0, fields))
    return evidence


def read(*seen: Evidence) -> Saves:
    saves = Saves()
    saves.update(seen)
    return saves


def test_a_commit_belongs_to_its_save() -> None:
    saves = read(told(FIRST, (5, SAVED, "a", 10), (9, COMMITTED, "a", 10), (12, SAVED, "b", 20)))
    rows = [(row.uri, row.cursor, row.saved_ns, row.committed_ns) for row in saves.rows]
    assert rows == [("a", 10, 5, 9), ("b", 20, 12, None)]
    assert [(row.blocking_ns, row.upload_ns, row.bytes) for row in saves.rows] == [
        (2, 3, 4),
        (2, None, None),
    ]
    assert saves.blocking_ns == 4
    assert (saves.safe(FIRST), saves.safe(SECOND)) == (10, None)


def test_a_later_attempt_may_commit_what_an_earlier_one_saved() -> None:
    saves = read(told(FIRST, (5, SAVED, "a", 10)), told(SECOND, (20, COMMITTED, "a", 10)))
    assert [(row.attempt, row.committed_ns) for row in saves.rows] == [(FIRST, 20)]
    assert saves.safe(FIRST) == 10


def test_a_later_attempts_save_of_the_same_name_is_another() -> None:
    first = told(FIRST, (5, SAVED, "a", 10), (6, COMMITTED, "a", 10))
    saves = read(first, told(SECOND, (20, SAVED, "a", 10), (21, COMMITTED, "a", 10)))
    assert [(row.attempt, row.committed_ns) for row in saves.rows] == [(FIRST, 6), (SECOND, 21)]


def test_a_later_attempts_word_of_an_old_commit_is_no_save() -> None:
    first = told(FIRST, (5, SAVED, "a", 10), (6, COMMITTED, "a", 10))
    saves = read(first, told(SECOND, (21, COMMITTED, "a", 10)))
    assert [(row.attempt, row.committed_ns) for row in saves.rows] == [(FIRST, 6)]
    assert saves.safe(SECOND) is None


def test_safe_is_what_was_committed_last() -> None:
    saves = [(5, SAVED, "a", 10), (6, SAVED, "b", 20), (7, COMMITTED, "b", 20)]
    assert read(told(FIRST, *saves, (8, COMMITTED, "a", 10))).safe(FIRST) == 10
    assert read(told(FIRST, *saves, (8, COMMITTED, "c", None))).safe(FIRST) == 20


def test_of_several_ranks_the_longest_blocking_counts() -> None:
    evidence = Evidence(FIRST)
    for rank, blocking in enumerate([3, 8, True, 5]):
        fields = {"checkpoint": "a", "cursor": 10, "blocking_ns": blocking}
        evidence.add(Event("j", f"t{rank}", 0, 5 + rank, SAVED, FIRST, rank, fields))
    saves = read(evidence)
    assert [row.blocking_ns for row in saves.rows] == [8]
    assert saves.blocking_ns == 8


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 10**9))
def test_portions_and_order_change_nothing(seed) -> None:
    rng = random.Random(seed)
    saves, seen = Saves(), dict[AttemptId, Evidence]()
    news = []
    for seq in range(rng.randint(0, 15)):
        attempt = AttemptId(rng.randint(1, 3))
        fields = {
            "checkpoint": rng.choice(["a", "b", "c", None]),
            "cursor": rng.choice([None, 10, 20, 30]),
            "blocking_ns": rng.choice([None, 1, 5]),
            "anchor": rng.random() < 0.2,
        }
        kind, time = rng.choice([SAVED, COMMITTED]), rng.randint(0, 20)
        news.append(Event("j", "w", seq, time, kind, attempt, 0, fields))
    if rng.random() < 0.6:
        news.sort(key=lambda event: event.time_ns)
    for event in news:
        seen.setdefault(event.attempt, Evidence(event.attempt)).add(event)
        if rng.random() < 0.5:
            saves.update([seen[name] for name in sorted(seen)])
    every = [seen[name] for name in sorted(seen)]
    saves.update(every)
    fresh = read(*every)
    assert saves.rows == fresh.rows
    assert saves.blocking_ns == fresh.blocking_ns == sum(r.blocking_ns or 0 for r in fresh.rows)
    for number in range(1, 4):
        assert saves.safe(AttemptId(number)) == fresh.safe(AttemptId(number))
