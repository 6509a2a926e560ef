"""Trainings for the system tests, in both modes, with a trainer that needs no PyTorch."""

from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG, Param

from airflow_ett.operators import TorchXTrainingOperator

TRAINER = Path(__file__).resolve().parents[1] / "trainers" / "light.py"

for name, deferrable in (("deferred", True), ("held", False)):
    with DAG(
        f"training_{name}",
        schedule=None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        params={
            "steps": Param(100, type="integer"),
            "place": Param("", type="string"),
            "fail_first_at": Param(0, type="integer"),
        },
    ) as dag:
        TorchXTrainingOperator(
            task_id="train",
            deferrable=deferrable,
            poll_interval=0.5,
            retries=2,
            component_args=[
                "--script",
                str(TRAINER),
                "--",
                "--steps={{ params.steps }}",
                "--place={{ params.place }}",
                "--fail-first-at={{ params.fail_first_at }}",
            ],
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
