"""Publish a running training's checkpoints beside it, and tell another DAG of each model.

The first DAG trains the example ranker and, at the same time, publishes its newest committed
checkpoint every minute and the last one at its end: bfloat16 weights, and a program that needs no
Python class to be loaded. Its task holds no worker while it waits. The second DAG runs when the
last one is published.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_ett import config
from airflow_ett.operators import ModelPublishOperator, TorchXTrainingOperator, model_asset

RANKER = "airflow_ett.examples.ranker"
HOME = config.airflow_home() / "ett"
START = datetime(2026, 1, 1, tzinfo=UTC)

with DAG(
    "example_ett_publish",
    schedule=None,
    start_date=START,
    catchup=False,
    tags=["ett", "example"],
    doc_md=__doc__,
    params={
        "samples": Param(360_000, type="integer", description="samples to train on, over epochs"),
        "data": Param(f"{HOME}/data", description="folder of MovieLens-100k, fetched if empty"),
        "registry": Param(f"{HOME}/registry", description="registry to publish into"),
    },
) as dag:
    train = TorchXTrainingOperator(
        task_id="train",
        component_args=[
            "--m",
            f"{RANKER}.train",
            "--",
            "--samples={{ params.samples }}",
            "--data={{ params.data }}",
        ],
        retries=2,
    )
    publish = ModelPublishOperator(
        task_id="publish",
        publish_every=timedelta(minutes=1),
        training="train",
        model=f"{RANKER}.model:build",
        registry="{{ params.registry }}",
        name="ranker-live",
        transforms=["bfloat16", "export"],
    )

with DAG(
    "example_ett_publish_follow",
    schedule=[model_asset("ranker-live")],
    start_date=START,
    catchup=False,
    tags=["ett", "example"],
) as follow:

    @task
    def announce(triggering_asset_events: Any = None) -> list[str]:
        """Return where the published models lie."""
        events = [event for found in triggering_asset_events.values() for event in found]
        return [str(event.extra["uri"]) for event in events]

    announce()
