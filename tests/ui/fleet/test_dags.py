"""The table of Dags."""

from collections.abc import Callable

import pytest

from airflow_ett.metric import COMPONENTS
from airflow_ett.store.sums import Sums
from airflow_ett.ui.fleet.choice import ORDERS
from airflow_ett.ui.fleet.dags import DagRow, dag_rows, history, ordered, scale_of
from airflow_ett.ui.fleet.reads import Found
from tests.ui.fleet.conftest import HOUR, S

Make = Callable[..., Sums]


@pytest.fixture
def found(sums: Make, unmeasured: Sums) -> Found:
    """Two Dags that are measured, one that is not, and one that only runs."""
    worse = {"effective": 6 * HOUR, "pt2_compile": 3 * HOUR, "wasted": HOUR}
    return Found(
        now={
            "big": sums(jobs=3, nof_by_cause={"launch": 1}),
            "slow": sums(components_ns=worse, tts_ns=9 * S, ett_pct=60.0),
            "silent": unmeasured,
        },
        before={"slow": sums(), "silent": sums()},
        days={},
        running={"slow": 2, "live": 1},
    )


def _rows(found: Found, *, held: bool = False, accelerated: bool = True) -> list[DagRow]:
    return dag_rows(found, COMPONENTS, held=held, accelerated=accelerated)


def test_dags_are_ranked_by_what_they_lost(found: Found) -> None:
    rows = _rows(found)
    assert [(row.rank, row.dag_id) for row in rows] == [
        (1, "big"),
        (2, "slow"),
        (3, "live"),
        (4, "silent"),
    ]
    assert [row.lost for row in rows] == [9 * HOUR, 7 * HOUR, None, None]
    assert [row.share_pct for row in rows[:2]] == pytest.approx([56.25, 43.75])
    assert [row.running for row in rows] == [0, 2, 1, 0]


def test_a_row_tells_the_largest_loss_and_its_owner(found: Found) -> None:
    slow = _rows(found)[1]
    assert (slow.largest, slow.owner) == ("PT2 compile", "compiler")
    assert slow.largest_pct == pytest.approx(75)
    assert slow.losses["pt2_compile"] == 3 * sum(slow.losses.values()) // 4
    assert (slow.failures_per_job, slow.tts_ns) == (1, 9 * S)


def test_a_change_is_against_the_period_before(found: Found) -> None:
    big, slow, live, silent = _rows(found)
    assert slow.change == pytest.approx(-20)
    assert (big.is_new, big.change) == (True, None)
    assert (silent.is_new, silent.change) == (False, None)
    assert (live.is_new, live.change) == (False, None)
    assert _rows(found, held=True)[1].change == pytest.approx(100 * (6 - 8) / 9.5)


def test_what_is_not_known_is_none(found: Found) -> None:
    *_, live, silent = _rows(found)
    for row in (live, silent):
        unknown = (row.ett_pct, row.share_pct, row.largest, row.owner, row.tts_ns)
        assert set(unknown) == {None}
    assert (live.failures_per_job, silent.failures_per_job) == (None, 1)


def test_without_accelerators_time_ranks(sums: Make) -> None:
    job = {"accelerators": 0}
    both = {"a": sums(**job), "b": sums(jobs=2, **job)}
    rows = _rows(Found(both, {}, {}, {}), accelerated=False)
    assert [(row.dag_id, row.lost) for row in rows] == [("b", 3 * HOUR), ("a", 3 * HOUR // 2)]


@pytest.mark.parametrize("column", ORDERS)
def test_every_column_sorts_and_the_unknown_comes_last(found: Found, column: str) -> None:
    rows = _rows(found)
    up, down = ordered(rows, column), ordered(rows, f"-{column}")
    assert sorted(row.rank for row in up) == sorted(row.rank for row in down) == [1, 2, 3, 4]
    if column in ("ett", "tts", "lost", "loss"):
        assert [row.dag_id for row in up[2:]] == [row.dag_id for row in down[2:]]
        assert [row.dag_id for row in up[:2]] == [row.dag_id for row in down[1::-1]]


def test_orders_are_those_of_the_numbers(found: Found) -> None:
    rows = _rows(found)
    assert ordered(rows, "ett")[0].dag_id == "slow"
    assert ordered(rows, "-failures")[0].failures_per_job == 1
    assert ordered(rows, "-running")[0].dag_id == "slow"
    assert [row.dag_id for row in ordered(rows, "dag")] == ["big", "live", "silent", "slow"]


def test_a_history_has_a_gap_where_nothing_is_known(sums: Make, unmeasured: Sums) -> None:
    days = {"2026-11-01": sums(), "2026-11-03": unmeasured}
    order = ["2026-11-01", "2026-11-02", "2026-11-03"]
    assert history(days, order, held=False) == {0: pytest.approx(80), 2: None}
    assert history(days, order, held=True)[0] == pytest.approx(100 * 8 / 9.5)


def test_all_histories_have_one_scale() -> None:
    assert scale_of([{0: 80.0, 3: None}, {1: 60.0, 2: 90.0}]) == (60.0, 90.0)
    assert scale_of([{0: None}, {}]) is None
