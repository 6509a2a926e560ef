"""Trainings for the system tests, in both modes, with a trainer that needs no PyTorch."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param

from airflow_ett.operators import TorchXTrainingOperator

TRAINER = Path(__file__).resolve().parents[1] / "trainers" / "light.py"

MODES: dict[str, dict[str, Any]] = {
    "deferred": {"deferrable": True, "retries": 2},
    "held": {"deferrable": False, "retries": 2},
    "timed_deferred": {"deferrable": True, "execution_timeout": timedelta(seconds=8)},
    "timed_held": {"deferrable": False, "execution_timeout": timedelta(seconds=8)},
}

for name, options in MODES.items():
    with DAG(
        f"training_{name}",
        schedule=None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        params={
            "steps": Param(100, type="integer"),
            "place": Param("", type="string"),
            "fail_first_at": Param(0, type="integer"),
            "linger_s": Param(0, type="number"),
        },
    ) as dag:
        TorchXTrainingOperator(
            task_id="train",
            poll_interval=0.5,
            component_args=[
                "--script",
                str(TRAINER),
                "--",
                "--steps={{ params.steps }}",
                "--place={{ params.place }}",
                "--fail-first-at={{ params.fail_first_at }}",
                "--linger-s={{ params.linger_s }}",
            ],
            **options,
        )
    globals()[dag.dag_id] = dag

with DAG(
    "training_wrong",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    params={"resume": Param("", type="string")},
) as wrong:
    TorchXTrainingOperator(
        task_id="train",
        component_args=["--script", str(TRAINER), "--", "--steps=1", "--place=/nowhere"],
        resume="{{ params.resume }}",
        retries=2,
    )
