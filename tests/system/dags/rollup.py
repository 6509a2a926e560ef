"""The rollup DAG; a file beside Airflow's own says what its reaper may do, and its grace is short.

A task's process reads this file before it runs.
"""

import os
from pathlib import Path

from airflow_ett.dags import rollup_dag
from airflow_ett.hooks import reaper

WAY = Path(os.environ["AIRFLOW_HOME"]) / "reaper"

if WAY.exists():
    os.environ["AIRFLOW__ETT__REAPER"] = WAY.read_text()
reaper.GRACE_S = 3.0

dag = rollup_dag("rollup", schedule=None)
