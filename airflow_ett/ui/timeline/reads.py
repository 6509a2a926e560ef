"""What a timeline is folded from. A process keeps the folds of the jobs looked at last."""

from __future__ import annotations

from functools import lru_cache

from airflow_ett import config
from airflow_ett.metric import configured
from airflow_ett.store import Store
from airflow_ett.store.timeline import Timelines


@lru_cache(maxsize=1)
def timelines(store: Store) -> Timelines:
    """Return the store's timelines: a process has one store."""
    return Timelines(store, configured(config.load()))


def keep_days() -> int | None:
    """Return after how many days raw events are removed, None where that is not told in days."""
    kept = config.load().keep_events
    return None if kept is None else kept.days or None
