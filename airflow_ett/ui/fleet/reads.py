"""What the fleet page reads from the store; all raise :class:`airflow_ett.errors.StoreError`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from airflow_ett.store import Store, periods
from airflow_ett.store.periods import Period
from airflow_ett.store.scope import Dags
from airflow_ett.store.sums import Sums


@dataclass(frozen=True, slots=True)
class Found:
    """Sums over the jobs that ended, by Dag in a period and the one before, and by day.

    ``running`` counts, by Dag, the jobs that have not ended yet.
    """

    now: Mapping[str, Sums]
    before: Mapping[str, Sums]
    days: Mapping[str, Sums]
    running: Mapping[str, int]


def fleet(store: Store, period: Period, before: Period, dags: Dags) -> Found:
    """Return the sums of these Dags, which are those of one deployment."""
    return Found(
        now={dag_id: sums for (_, dag_id), sums in periods.by_dag(store, period, dags).items()},
        before={dag_id: sums for (_, dag_id), sums in periods.by_dag(store, before, dags).items()},
        days=periods.by_day(store, period, dags),
        running={dag_id: count for (_, dag_id), count in periods.running(store, dags).items()},
    )


def histories(
    store: Store, period: Period, dags: Dags, ids: Collection[str]
) -> dict[str, dict[str, Sums]]:
    """Return the sums of some of the Dags by day."""
    found = periods.by_dag_and_day(store, period, replace(dags, ids=ids))
    return {dag_id: days for (_, dag_id), days in found.items()}
