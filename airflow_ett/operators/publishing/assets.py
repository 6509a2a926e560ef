"""An Airflow asset per published model, so that other DAGs can follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Asset

_TOLD = ("version", "uri", "digest", "cursor")


def model_asset(name: str) -> Asset:
    """Return the asset that a :class:`ModelPublishOperator` of this ``name`` updates.

    ``schedule=[model_asset("ranker")]`` makes a DAG follow it. The events' ``extra`` has version,
    uri, digest and cursor of what was published.
    """
    return Asset(name=f"ett-model-{name}", uri=f"x-ett://model/{name}", group="ett-model")


def announce(outlets: Sequence[Any], events: Any, published: Mapping[str, Any]) -> None:
    """Let the event of each asset among a task's outlets say what was published.

    ``events`` are the context's ``outlet_events``. Airflow makes them when the task succeeds.
    """
    extra = {name: published.get(name) for name in _TOLD}
    for outlet in outlets:
        if isinstance(outlet, Asset):
            events[outlet].extra.update(extra)
