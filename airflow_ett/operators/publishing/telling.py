"""What others learn of a published version: the model's own manifest, and the training's log."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_ett import config
from airflow_ett.events import Event, Kind, slug
from airflow_ett.hooks.ingest import BestEffortIngest, numbers_of
from airflow_ett.launch.root import Root

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

_OF_TRAINING = ("job", "handle")
_TIMES = {"begin_ns": "begin", "end_ns": "end"}


def provenance(source: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Return what the manifest is to say of the training, and of who published it.

    ``metrics`` are the training's numbers by now (docs/metric.md), where the database is at hand.
    """
    ti = context["ti"]
    told: dict[str, Any] = {name: str(source[name]) for name in _OF_TRAINING if source.get(name)}
    if "job" in told and (metrics := numbers_of(config.load(), told["job"])):
        told["metrics"] = metrics
    return told | {
        "published_by": {
            "dag_id": ti.dag_id,
            "run_id": ti.run_id,
            "task_id": ti.task_id,
            "try_number": ti.try_number,
        }
    }


def record(source: Mapping[str, Any], published: Mapping[str, Any], context: Context) -> None:
    """Tell the training's log what was published, so that its report shows what became of it.

    ``source`` has the training's ``job`` and ``run_dir``. Raises :class:`JobLogError` when its log
    cannot be reached.
    """
    ti, place = context["ti"], str(source["run_dir"])
    name = f"publish-{slug(ti.task_id)}-{ti.try_number}-{time.time_ns()}"
    told = {_TIMES.get(key, key): value for key, value in published.items()}
    event = Event(str(source["job"]), name, 0, time.time_ns(), Kind.PUBLISHED, data=told)
    Root.of(config.load()).open(place).append(f"launcher/{name}.jsonl", [event])
    BestEffortIngest(place)(now=True)
