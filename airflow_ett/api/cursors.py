"""Opaque cursors: where the next page of a list begins."""

import base64
import binascii
import json
from collections.abc import Sequence
from typing import TypeVar, get_type_hints

from fastapi import HTTPException

from airflow_ett.api.names import is_storable
from airflow_ett.store.queries import EventPlace, JobPlace

_MOST = 2**63 - 1
_LONGEST = 2_000
_Place = TypeVar("_Place", JobPlace, EventPlace)


def encode(place: Sequence[str | int]) -> str:
    """Return the cursor of what stands behind ``place``."""
    text = json.dumps(list(place), separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(cursor: str | None, kind: type[_Place]) -> _Place | None:
    """Return the place in a cursor, None where there is none.

    Raises :class:`HTTPException` 422 for what is no cursor of this list.
    """
    if cursor is None:
        return None
    try:
        if len(cursor) > _LONGEST:
            raise ValueError("too long")
        padded = cursor + "=" * (-len(cursor) % 4)
        parts = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        place = kind(*parts)
        kinds = get_type_hints(kind).values()
        if not all(_fits(part, want) for part, want in zip(place, kinds, strict=True)):
            raise ValueError("another list's")
    except (ValueError, TypeError, binascii.Error, RecursionError) as error:
        text = "query.cursor: this is no cursor of this list. Take `next` of the page before, or "
        raise HTTPException(422, text + "leave it out to begin anew.") from error
    return place


def _fits(part: object, kind: type) -> bool:
    if kind is int:
        return isinstance(part, int) and not isinstance(part, bool) and -_MOST <= part <= _MOST
    return isinstance(part, str) and is_storable(part)
