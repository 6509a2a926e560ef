"""What routes ask for: who is there and what they may read, the store, the clock."""

from typing import Annotated

from fastapi import Cookie, Depends

from airflow_ett.api.access import Denied, ReadableDag, ReadableDags, User, get_user
from airflow_ett.api.reading import current_store
from airflow_ett.store import Store
from airflow_ett.ui.clock import Clock, clock_of

__all__ = [
    "Denied",
    "PageClock",
    "PageStore",
    "ReadableDag",
    "ReadableDags",
    "User",
    "current_store",
    "get_user",
]


def _clock(ett_zone: Annotated[str, Cookie()] = "") -> Clock:
    return clock_of(ett_zone)


PageStore = Annotated[Store, Depends(current_store)]
"""A route's parameter: the store; raises :class:`airflow_ett.errors.StoreError`."""

PageClock = Annotated[Clock, Depends(_clock)]
"""A route's parameter: the time zone that the user has chosen in Airflow, UTC without a choice."""
