"""Trainings on Slurm of which nothing is retried; one kind does not wait for ever."""

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, Param

from airflow_ett.operators import TorchXTrainingOperator

KINDS: dict[str, dict[str, Any]] = {
    "slurm": {},
    "slurm_impatient": {"start_timeout": 8, "deferrable": False},
}

for name, options in KINDS.items():
    with DAG(
        name,
        schedule=None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        is_paused_upon_creation=False,
        render_template_as_native_obj=True,
        params={"arguments": Param([], type="array"), "cfg": Param({}, type="object")},
    ) as dag:
        TorchXTrainingOperator(
            task_id="train",
            scheduler="slurm",
            poll_interval=0.5,
            component_args="{{ params.arguments }}",
            cfg="{{ params.cfg }}",
            **options,
        )
    globals()[name] = dag
