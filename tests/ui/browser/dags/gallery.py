"""Airflow's side of the gallery: every Dag has a task and three mapped ones that may train."""

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, task

from tests.ui.gallery.names import DAGS

for name in DAGS:
    with DAG(name, schedule=None) as globals()[name]:

        @task
        def tune(size: int) -> None: ...

        tune.expand(size=[1, 2, 3])
        EmptyOperator(task_id="train")
