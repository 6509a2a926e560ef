"""Trainings that are shot at, in both modes, and a rollup whose reaper acts.

Graces that are long for the sake of slow Airflows are short here. On Slurm a training is started
again by Slurm in some DAGs, by this package alone in the others.
"""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param

from airflow_ett.dags import rollup_dag
from airflow_ett.hooks import reaper
from airflow_ett.operators import TorchXTrainingOperator, stopping

TRAINER = Path(__file__).resolve().parents[2] / "trainers" / "saving.py"
MANY = 100

SCHEDULER = os.environ["ETT_CHAOS_SCHEDULER"]
LOGIN = {"ssh_conn_id": "cluster"} if "AIRFLOW_CONN_CLUSTER" in os.environ else {}
KINDS: dict[str, dict[str, Any]] = {"": {}}
if SCHEDULER == "slurm":
    KINDS = {
        kind: {
            "cfg": {"requeue": kind == "_requeued", **LOGIN},
            # What slurmctld forgets when it is killed is given up after this.
            "unknown_grace": 15,
            "env": {"PATH": os.environ["PATH"]},
        }
        for kind in ("_requeued", "_relaunched")
    }

for mode in ("held", "deferred"):
    for kind, options in KINDS.items():
        with DAG(
            f"chaos_{mode}{kind}",
            schedule=None,
            start_date=datetime(2026, 1, 1, tzinfo=UTC),
            catchup=False,
            max_active_runs=MANY,
            params={"place": Param("", type="string")},
        ) as dag:
            TorchXTrainingOperator(
                task_id="train",
                scheduler=SCHEDULER,
                deferrable=mode == "deferred",
                retries=MANY,  # each killed process of Airflow costs a try
                max_relaunches=MANY,
                poll_interval=0.5,
                component_args=[
                    *("--cpu", "1", "--memMB", "500"),
                    *("--script", str(TRAINER), "--", "--place={{ params.place }}"),
                ],
                **options,
            )
        globals()[dag.dag_id] = dag

os.environ["AIRFLOW__ETT__REAPER"] = "cancel"
reaper.GRACE_S = 3.0
stopping.MOVED_DELAY = timedelta(seconds=8)
rollup = rollup_dag("chaos_rollup", schedule=None)
