"""A task that does what no task may: it opens Airflow's metadata database."""

import os
import sqlite3
from datetime import UTC, datetime

from airflow.sdk import DAG, task

with DAG(
    "meddling", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False
) as dag:

    @task
    def meddle() -> int:
        """Count the DAGs."""
        with sqlite3.connect(f"{os.environ['AIRFLOW_HOME']}/airflow.db") as database:
            return int(database.execute("SELECT count(*) FROM dag").fetchone()[0])

    meddle()
