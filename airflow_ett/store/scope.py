"""Rows of some DAGs and one deployment alone, filtered by the database."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, String, Table, any_, func, literal, select
from sqlalchemy.dialects.postgresql import ARRAY

from airflow_ett.store.engine import Store


@dataclass(frozen=True, slots=True)
class Dags:
    """The DAGs that count (``ids`` None: every one), in one deployment or in each."""

    ids: Collection[str] | None
    deployment: str | None = None

    def conditions(self, store: Store, table: Table) -> list[ColumnElement[bool]]:
        """Return them as conditions on a table."""
        found = []
        if self.ids is not None:
            found.append(within(store, table.c.dag_id, self.ids))
        if self.deployment is not None:
            found.append(table.c.deployment == self.deployment)
        return found


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
