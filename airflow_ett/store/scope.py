"""Rows of some DAGs alone, filtered by the database."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, String, any_, func, literal, select
from sqlalchemy.dialects.postgresql import ARRAY

from airflow_ett.store.engine import Store


def within(
    store: Store, column: ColumnElement[Any], values: Collection[str]
) -> ColumnElement[bool]:
    """Return the condition that ``column`` is one of ``values``, of which there may be thousands.

    They travel as one parameter: both databases bound how many a statement may have.
    """
    if len(values) == 1:
        return column == next(iter(values))
    if store.is_sqlite:
        listed = func.json_each(json.dumps(sorted(values))).table_valued("value")
        return column.in_(select(listed.c.value))
    return column == any_(literal(sorted(values), ARRAY(String)))
