"""Trainings that are shot at, in both modes, and a rollup whose reaper acts.

Graces that are long for the sake of slow Airflows are short here.
"""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG, Param

from airflow_ett.dags import rollup_dag
from airflow_ett.hooks import reaper
from airflow_ett.operators import TorchXTrainingOperator, stopping

TRAINER = Path(__file__).resolve().parents[2] / "trainers" / "saving.py"
MANY = 100

for mode in ("held", "deferred"):
    with DAG(
        f"chaos_{mode}",
        schedule=None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=MANY,
        params={"place": Param("", type="string")},
    ) as dag:
        TorchXTrainingOperator(
            task_id="train",
            deferrable=mode == "deferred",
            retries=MANY,  # each killed process of Airflow costs a try
            max_relaunches=MANY,
            poll_interval=0.5,
            component_args=["--script", str(TRAINER), "--", "--place={{ params.place }}"],
        )
    globals()[dag.dag_id] = dag

os.environ["AIRFLOW__ETT__REAPER"] = "cancel"
reaper.GRACE_S = 3.0
stopping.MOVED_DELAY = timedelta(seconds=8)
rollup = rollup_dag("chaos_rollup", schedule=None)
