"""From the reports of a period to all that the tab shows."""

from collections.abc import Callable
from typing import Any

from airflow_ett.metric import COMPONENTS
from airflow_ett.ui.clock import Clock
from airflow_ett.ui.dag.filters import Filters
from airflow_ett.ui.dag.view import DagView, dag_view

Make = Callable[..., dict[str, Any]]
DAY = 86_400 * 10**9
NOW = 1_796_000_000 * 10**9


def _jobs(report: Make, count: int, **changes: Any) -> list[dict[str, Any]]:
    return [
        report(job=f"{i:020}", run_id=f"run{i}", begin_ns=NOW - (count - i) * DAY, **changes)
        for i in range(count)
    ]


def _view(rows: Any, before: Any = (), filters: Filters | None = None, **options: Any) -> DagView:
    return dag_view("ranker", rows, before, filters or Filters(), clock=Clock(), **options)


def test_a_period_is_compared_with_the_one_before(report: Make) -> None:
    rows = _jobs(report, 45)
    view = _view(rows[15:], rows[:15])
    assert view.before is not None
    assert (view.now.jobs, view.before.jobs) == (30, 15)


def test_the_newest_runs_come_first_and_all_on_request(report: Make) -> None:
    rows = _jobs(report, 30)
    view = _view(rows)
    assert [row.job.run_id for row in view.rows[:2]] == ["run29", "run28"]
    assert (len(view.rows), view.total, view.runs) == (12, 30, 30)
    assert len(_view(rows, filters=Filters(every=True)).rows) == 30


def test_nothing_measured_before_is_no_comparison(report: Make, silent: Make) -> None:
    view = _view([report(job="b")], [silent(job="a", begin_ns=NOW - 8 * DAY)])
    assert view.before is None
    assert {row.change for row in view.components} == {None}


def test_rows_are_on_the_pages_clock(report: Make) -> None:
    (row,) = _view([report()]).rows
    assert (row.whole_ns, row.pct, row.lost) == (1000 * 10**9, 84.0, 120 * 10**9 * 8)
    (row,) = _view([report()], filters=Filters(held=True)).rows
    assert (row.whole_ns, row.pct, row.lost) == (960 * 10**9, 87.5, 120 * 10**9 * 8)
    assert sum(row.parts_ns.values()) == row.whole_ns


def test_jobs_of_one_run_are_told_apart(report: Make) -> None:
    rows = [report(job=f"{i}", run_id="r", map_index=i, begin_ns=i) for i in range(3)]
    view = _view(rows)
    assert (view.total, view.runs) == (3, 1)
    assert [row.job.label for row in view.rows] == ["r · train[2]", "r · train[1]", "r · train[0]"]
    assert view.rows[0].href.endswith("/runs/r/tasks/train/mapped/2/plugin/ett-task")


def test_a_bar_and_its_row_lead_to_the_same_place(report: Make) -> None:
    view = _view(_jobs(report, 5), one_task=False)
    links = view.figure["layout"]["meta"]["links"]
    assert [row.href for row in view.rows] == list(reversed(links))


def test_advice_names_the_configured_owner(report: Make) -> None:
    owned = COMPONENTS.changed(owners={"shutdown": "night-shift"})
    slow = {"train": 500 * 10**9, "publish": 500 * 10**9}
    attempt = report()["attempts"][0] | {"cause": None, "phases_ns": slow}
    rows = [
        row | {"phases_ns": slow, "attempts": [attempt], "checkpoints": [], "nof": 0, "ttr": []}
        for row in _jobs(report, 3)
    ]
    fixes = _view(rows, components=owned).fixes
    assert [(fix.owner, fix.runs) for fix in fixes.items] == [("night-shift", 3)]
    assert fixes.items[0].newest == "../../dags/ranker/runs/run2/plugin/ett-run"


def test_odd_jobs_alone_make_a_page(report: Make, silent: Make) -> None:
    nothing: dict[str, int] = {}
    empty = {"wall_ns": 0, "held_ns": 0, "effective_ns": 0, "ett_pct": None, "ett_pct_held": None}
    for rows in (
        [silent()],
        [report(state="running", frozen=False)],
        [report(state="failed", cause="application", ttr=[])],
        [report(**empty, components_ns=nothing, held_components_ns=nothing, attempts=[])],
        [report(held_ns=0, held_components_ns=nothing, ett_pct_held=None)],
        [report(accelerators=0)],
    ):
        for held in (False, True):
            view = _view(rows, rows, Filters(held=held))
            assert (view.total, len(view.rows), len(view.components)) == (1, 1, 7)
