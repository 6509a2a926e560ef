"""A Dag with one training. Lines ending in ``# +`` are those to add to a Dag of one's own."""

from pathlib import Path

from airflow.sdk import DAG

from airflow_ett.operators import TorchXTrainingOperator  # +

TRAIN = Path(__file__).with_name("train.py")

with DAG("first_steps") as dag:
    TorchXTrainingOperator(  # +
        task_id="train",  # +
        component_args=["--script", str(TRAIN)],  # +
        retries=2,  # +
    )  # +
