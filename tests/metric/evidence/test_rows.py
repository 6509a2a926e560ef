"""The packed intervals against a plain list of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.events import AttemptId, Event
from airflow_ett.metric.evidence.fields import FOREVER
from airflow_ett.metric.evidence.rows import Row, Rows, read_row

WHOLE: dict[str, Any] = {"from": 10, "to": 20, "cursor_from": 0, "cursor_to": 5, "steps": 2}
WHOLE |= {"step_ns": 6, "wait_ns": 3, "other_ns": 1}

ROWS = st.lists(
    st.builds(
        lambda begin, length, wait, trimmed, late: (
            *(begin, begin + length, 0, 1, 1, 0, min(wait, length), 2 * trimmed),
            *(0, 0, max(0, begin + late)),
        ),
        *[st.integers(0, 30), st.integers(0, 9), st.integers(0, 9)],
        *[st.booleans(), st.integers(-3, 12)],
    ),
    max_size=25,
)


def numbered(rows: list[tuple[int, ...]], writers: int) -> list[tuple[int, ...]]:
    return [(*row[:8], at // writers, at % writers, row[10]) for at, row in enumerate(rows)]


def check(rows: Rows, plain: list[tuple[int, ...]]) -> None:
    rows.arrange()
    plain = sorted(plain)
    assert list(rows.between(0, len(rows))) == plain
    assert [rows.row(at) for at in range(len(rows))] == [Row(*row) for row in plain]
    assert rows.wait_ns == sum(row[6] for row in plain)
    assert rows.trimmed == sum(Row(*row).trimmed for row in plain)
    if plain:
        assert rows.earliest_ns == min(min(row[0], row[10]) for row in plain)
        assert rows.latest_ns == max(max(row[1], row[10]) for row in plain)
    for moment in range(-1, 42):
        assert rows.before(moment) == sum(row[0] < moment for row in plain)
    assert rows.begin_ns(len(rows)) == FOREVER
    for at, row in enumerate(plain):
        assert rows.begin_ns(at) == row[0]
        assert rows.find(row[9], row[8]) == at
    assert rows.find(0, 99) is None
    assert rows.find(9, 0) is None
    for writer in (0, 1, 2):
        assert rows.last_seq(writer) == max([r[8] for r in plain if r[9] == writer], default=-1)


@settings(max_examples=300, deadline=None)
@given(ROWS, st.integers(1, 2), st.randoms(use_true_random=False))
def test_rows_in_any_order(rows, writers, rng) -> None:
    plain = numbered(rows, writers)
    found = Rows()
    for at, row in enumerate(rng.sample(plain, len(plain))):
        found.append(row)
        if at % 5 == 4:
            found.arrange()
    check(found, plain)


@settings(max_examples=300, deadline=None)
@given(ROWS.filter(bool), ROWS.filter(bool), st.randoms(use_true_random=False))
def test_rows_replaced_and_removed(rows, others, rng) -> None:
    plain = sorted(numbered(rows, 2))
    found = Rows()
    for row in plain:
        found.append(row)
    found.stable = len(found)
    for other in others[: len(plain)]:
        at = found.find(*(victim := rng.choice(plain))[9:7:-1])
        assert at is not None
        plain.remove(victim)
        if rng.random() < 0.3 and plain:
            found.remove(at)
        else:
            plain.append((*other[:8], *victim[8:10], other[10]))
            found.replace(at, plain[-1])
        before = [*found.between(0, found.stable)]
        check(found, plain)
        assert [*found.between(0, found.stable)] == before[: found.stable]


@settings(max_examples=200, deadline=None)
@given(ROWS, ROWS)
def test_what_is_stable_has_not_moved(rows, more) -> None:
    plain = numbered([*rows, *more], 1)
    found = Rows()
    for row in plain[: len(rows)]:
        found.append(row)
    found.arrange()
    found.stable = len(found)
    before = [*found.between(0, len(found))]
    for row in plain[len(rows) :]:
        found.append(row)
    found.arrange()
    kept = found.stable
    assert [*found.between(0, kept)] == before[:kept]
    after = [*found.between(0, len(before))]
    assert kept == len(before) or after[kept] != before[kept]


def read(**fields: Any) -> Row | None:
    data = {name: value for name, value in {**WHOLE, **fields}.items() if value is not ...}
    cells = read_row(Event("j", "w", 7, 21, "interval", AttemptId(1), 0, data), 3)
    return None if cells is None else Row(*cells)


def test_a_row_is_what_its_event_says() -> None:
    assert read() == Row(10, 20, 0, 5, 2, 6, 3, 0, 7, 3, 21)
    assert read(fragment=True).fragment is True
    assert read(fragment=1).fragment is False
    assert read(steps=...).steps == 0


@pytest.mark.parametrize("name", ["from", "to", "cursor_from", "cursor_to"])
@pytest.mark.parametrize("junk", [..., None, True, -1, 2**63, 1.0, "1"])
def test_a_row_needs_its_edges(name, junk) -> None:
    assert read(**{name: junk}) is None


@pytest.mark.parametrize("junk", [..., None, True, -1, 2**63, 1.0, "1"])
@pytest.mark.parametrize(
    ("name", "parts"), [("step_ns", (0, 3)), ("wait_ns", (6, 0)), ("other_ns", (6, 3))]
)
def test_a_part_that_cannot_be_used_is_none(name, parts, junk) -> None:
    row = read(**{name: junk})
    assert (row.step_ns, row.wait_ns, row.trimmed) == (*parts, True)


def test_parts_that_do_not_fit_are_cut_waiting_first() -> None:
    row = read(wait_ns=8, step_ns=9)
    assert (row.wait_ns, row.step_ns, row.trimmed) == (8, 2, True)
    row = read(wait_ns=11)
    assert (row.wait_ns, row.step_ns, row.trimmed) == (10, 0, True)
    assert read(to=9) is None
    assert read(to=10).trimmed
