"""Parameters that several routes take."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from fastapi import HTTPException, Query
from pydantic import BeforeValidator, WithJsonSchema

from airflow_ett import config
from airflow_ett.api.names import Name
from airflow_ett.store.periods import Period

_MOST = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS = re.compile(r"\d{1,19}", re.ASCII)


def _instant(text: object) -> int:
    if isinstance(text, str) and _DIGITS.fullmatch(text):
        ns = int(text)
    else:
        try:
            moment = datetime.fromisoformat(str(text))
        except ValueError as error:
            raise ValueError(_WANTED) from error
        if moment.tzinfo is None:
            raise ValueError(f"{_WANTED}; this one names no time zone")
        ns = (moment - _EPOCH) // timedelta(microseconds=1) * 1000
    if not 0 <= ns <= _MOST:
        raise ValueError("a time from 1970 to 2262")
    return ns


_WANTED = "a time is RFC 3339, such as 2026-11-29T10:00:00Z, or nanoseconds since 1970"

Instant = Annotated[int, BeforeValidator(_instant), WithJsonSchema({"type": "string"})]
"""A time, as UTC nanoseconds."""

Since = Annotated[
    Instant | None,
    Query(description=f"Jobs that began at this time or later: {_WANTED}."),
]
Until = Annotated[Instant | None, Query(description="Jobs that began before this time.")]
Limit = Annotated[int, Query(ge=1, le=500, description="Rows at most.")]
Cursor = Annotated[
    str | None, Query(description="`next` of the page before; leave it out for the first.")
]
DagIds = Annotated[
    list[Name] | None, Query(max_length=500, description="Rows of this DAG alone; repeatable.")
]
TableFormat = Annotated[
    Literal["json", "csv"] | None,
    Query(description="`json` or `csv`; without it the header Accept decides."),
]
Days = Annotated[
    int, Query(ge=1, le=3660, description="Length of the period in days, the last one included.")
]
LastDay = Annotated[
    date | None,
    Query(
        alias="until",
        description="The period's last day, in `[ett] timezone`; today where it is left out.",
    ),
]


def period_of(days: int, last: date | None) -> Period:
    """Return a period in the configured zone.

    Raises :class:`HTTPException` 422 where it reaches beyond what a calendar has.
    """
    zone = ZoneInfo(config.load().timezone)
    end = last or datetime.now(zone).date()
    if not date(1971, 1, 1) <= end <= date(2261, 12, 31):
        raise HTTPException(422, "query.until: a day from 1971 to 2261")
    first = max(end - timedelta(days=days - 1), date(1970, 1, 2))
    return Period(first.isoformat(), end.isoformat(), zone)


def chosen(format_: str | None, accept: str, offers: dict[str, str]) -> str:
    """Return the first format that a request asks for: by ``format``, else by its header.

    ``offers`` maps media types to formats; the first is the default.
    """
    if format_ is not None:
        return format_
    for wanted in accept.split(","):
        kind = wanted.partition(";")[0].strip().lower()
        if kind in offers:
            return offers[kind]
    return next(iter(offers.values()))
