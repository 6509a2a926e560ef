"""Models published after, and beside, their training; a DAG that follows what is published."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_ett.operators import ModelPublishOperator, TorchXTrainingOperator, model_asset

TRAINER = Path(__file__).resolve().parents[1] / "trainers" / "tiny.py"
COMMON: dict[str, Any] = {
    "schedule": None,
    "start_date": datetime(2026, 1, 1, tzinfo=UTC),
    "catchup": False,
    "params": {"place": Param("", type="string"), "checkpoint": Param("", type="string")},
}
MODEL: dict[str, Any] = {
    "model": "airflow_ett.examples.ranker.model:build",
    "registry": "{{ params.place }}/registry",
}


def train(*arguments: str) -> TorchXTrainingOperator:
    """Return a training of at least ten steps."""
    own = ["--script", str(TRAINER), "--", "--steps=10", *arguments]
    return TorchXTrainingOperator(task_id="train", poll_interval=0.5, component_args=own)


with DAG("publishing", **COMMON) as published:
    trained = train()
    trained >> ModelPublishOperator(
        task_id="publish", checkpoint=trained.output, name="tiny", transforms=["bfloat16"], **MODEL
    )

with DAG(
    "publishing_consumer",
    schedule=[model_asset("tiny")],
    start_date=COMMON["start_date"],
    catchup=False,
    is_paused_upon_creation=False,
) as consumer:

    @task
    def follow(**context: Any) -> list[dict[str, Any]]:
        """Return what the events say that started this run."""
        events = context["triggering_asset_events"]
        return [dict(event.extra) for asset in events for event in events[asset]]

    follow()

with DAG("publishing_again", **COMMON) as again:
    ModelPublishOperator(
        task_id="publish",
        checkpoint="{{ params.checkpoint }}",
        name="again",
        python=sys.executable,
        retries=1,
        retry_delay=timedelta(seconds=1),
        **MODEL,
    )

with DAG("publishing_beside", **COMMON) as beside:
    train("--every-s=1", "--until={{ params.place }}/end")
    ModelPublishOperator(
        task_id="publish",
        publish_every=1,
        poll_interval=1,
        name="beside",
        scheduler="local_detached",
        **MODEL,
    )
