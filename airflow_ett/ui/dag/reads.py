"""What the Dag tab reads from the store; all raise :class:`airflow_ett.errors.StoreError`.

A job's checkpoints may be thousands, so its whole result is never read, and of the period before no
more than sums need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from airflow_ett.api.access import of_this_airflow
from airflow_ett.store import Store, queries
from airflow_ett.store.queries import JobPlace, Wanted
from airflow_ett.ui.dag.kept import Kept
from airflow_ett.ui.dag.period import MOST, Period, Span, newest

Row = Mapping[str, Any]
"""A job as its report tells it, without what is long."""

_SUMMED = ("ett_pct_held", "ett_pct_paper", "held_components_ns", "ttr", "quality_reasons", "cause")
_ALL = (
    *_SUMMED,
    *("attempts", "compiles", "levels_ns", "phases_ns", "positions_ns", "nos", "utt_ns", "wtt_ns"),
)
_FEW = 5
_kept: WeakKeyDictionary[Store, Kept] = WeakKeyDictionary()


class Jobs(NamedTuple):
    """The jobs ``within`` a period, newest first, and those of the one before.

    ``within`` have all that advice needs. ``cut`` says that there are more; then nothing is known
    of those before.
    """

    within: Sequence[Row]
    before: Sequence[Row]
    cut: bool


def tasks(store: Store, dag_id: str) -> list[str]:
    """Return the tasks of a Dag that have trained in this deployment."""
    return queries.dag_task_ids(store, of_this_airflow([dag_id]))


def jobs(store: Store, dag_id: str, *, task: str | None, period: Period, span: Span) -> Jobs:
    """Return a Dag's jobs, those of one task or of all."""
    dags = of_this_airflow([dag_id])
    wanted = Wanted(
        dags.ids,
        dags.deployment,
        task_id=task,
        since_ns=span.before_ns,
        until_ns=span.end_ns,
    )
    rows = _listed(store, wanted, period.runs)
    count = period.count(rows, span)
    within, before = rows[: min(count, MOST)], rows[count:]
    if len(rows) > 2 * MOST or count > MOST:
        before = []
    return Jobs(
        within=_with_few_checkpoints(store, _with_parts(store, within, _ALL)),
        before=_with_parts(store, before, _SUMMED),
        cut=count > MOST,
    )


def _listed(store: Store, wanted: Wanted, runs: int | None) -> list[Row]:
    """The period and the one before, and one more where there are more than a page counts."""
    if runs is None:
        return queries.job_list(store, wanted, after=None, limit=2 * MOST + 1)
    rows: list[Row] = []
    after = None
    while len(rows) <= 2 * MOST:
        # One more than runs: where each has one job, a page of the list is enough.
        page = queries.job_list(store, wanted, after=after, limit=2 * runs + 1)
        rows += page
        count = newest([row["run_id"] for row in rows], 2 * runs)
        if count < len(rows) or len(page) <= 2 * runs:
            return rows[:count]
        after = JobPlace(rows[-1]["begin_ns"], rows[-1]["job"])
    return rows


def _with_parts(store: Store, rows: Sequence[Row], names: tuple[str, ...]) -> list[Row]:
    kept = _kept.setdefault(store, Kept())
    # A frozen result is made anew only by late evidence, and then its time is another.
    keys = {row["job"]: (row["job"], row["updated_ns"], names) for row in rows if row["frozen"]}
    parts = {job: found for job, key in keys.items() if (found := kept.get(key)) is not None}
    if missing := [row["job"] for row in rows if row["job"] not in parts]:
        read = queries.result_parts(store, missing, names)
        for job in read.keys() & keys.keys():
            kept.keep(keys[job], read[job])
        parts |= read
    return [{**row, **parts[row["job"]]} for row in rows if row["job"] in parts]


def _with_few_checkpoints(store: Store, rows: Sequence[Row]) -> list[Row]:
    few = queries.first_checkpoints(store, [row["job"] for row in rows], _FEW)
    return [{**row, "checkpoints": few[row["job"]]} for row in rows]
