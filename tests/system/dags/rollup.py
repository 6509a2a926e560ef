"""The rollup DAG; a file beside Airflow's own says what its reaper may do, and its grace is short.

A task's process reads this file before it runs. Its database may be another than other tasks'.
"""

import os
from pathlib import Path

from airflow_ett.dags import rollup_dag
from airflow_ett.hooks import reaper

WAY = Path(os.environ["AIRFLOW_HOME"]) / "reaper"

if WAY.exists():
    os.environ["AIRFLOW__ETT__REAPER"] = WAY.read_text()
if "ROLLUP_DATABASE" in os.environ:
    os.environ["AIRFLOW__ETT__SQL_ALCHEMY_CONN"] = os.environ["ROLLUP_DATABASE"]
reaper.GRACE_S = 3.0

dag = rollup_dag("rollup", schedule=None)
