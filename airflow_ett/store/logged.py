"""The logs of a job that the API holds, read back page by page."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, func, literal, not_, or_, tuple_

from airflow_ett.events import Event, encode
from airflow_ett.storage.access import LAUNCHER_FOLDER, LAUNCHER_WRITERS
from airflow_ett.store import tables
from airflow_ett.store.engine import Store
from airflow_ett.store.files import begins
from airflow_ett.store.project import load_events

_AT_ONCE = 100
"""An event may have a megabyte, and a trainer may have written many such."""

_event = tables.event.c


class Place(NamedTuple):
    """An event's place in the logs of its job."""

    writer: str
    seq: int


class Page(NamedTuple):
    """Lines of JSON, and the place of the last one where there are more, else None."""

    lines: bytes
    last: Place | None


def page(
    store: Store,
    job: str,
    folder: str,
    *,
    submission: int | None = None,
    after: Place | None = None,
    events: int = 5_000,
    size: int = 4 * 2**20,
) -> Page:
    """Return the next events of a folder's logs after a place, writer by writer.

    The launchers come in order of their epochs. ``submission`` keeps to that one's events. A page
    ends after so many ``events``, or where it is over ``size`` bytes. Raises :class:`StoreError`.
    """
    launchers = or_(*(begins(_event.writer, prefix) for prefix in LAUNCHER_WRITERS))
    is_launchers = folder == LAUNCHER_FOLDER
    only = [launchers if is_launchers else not_(launchers)]
    # launcher-9 comes before launcher-10; the nodes' many events come as their key has them.
    order: list[ColumnElement[Any]] = [_event.writer, _event.seq]
    if is_launchers:
        order.insert(0, func.length(_event.writer))
    if after is not None:
        reached: list[Any] = [literal(after.writer), literal(after.seq)]
        if is_launchers:
            reached.insert(0, func.length(literal(after.writer)))
        only.append(tuple_(*order) > tuple_(*reached))
    if submission is not None:
        only.append(_event.submission == submission)
    lines: list[bytes] = []
    length = 0
    with store.read() as connection:
        found = load_events(
            connection, job, and_(*only), order=order, limit=events + 1, at_once=_AT_ONCE
        )
        last: Event | None = None
        for event in found:
            if last is not None and (len(lines) == events or length > size):
                return Page(b"".join(lines), Place(last.writer, last.seq))
            last = event
            lines.append(encode(event))
            length += len(lines[-1])
    return Page(b"".join(lines), None)
