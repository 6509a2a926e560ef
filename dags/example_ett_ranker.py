"""Train a small DLRM-style ranker on MovieLens-100k, then publish it on a CPU.

The parameters induce two failures: an error in the first try (an Airflow retry) and a SIGKILL in
the second (relaunched within the try). An empty ``inject`` leaves the training undisturbed.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, Param

from airflow_ett import config
from airflow_ett.operators import ModelPublishOperator, TorchXTrainingOperator

RANKER = "airflow_ett.examples.ranker"
HOME = config.airflow_home() / "ett"

with DAG(
    "example_ett_ranker",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    tags=["ett", "example"],
    doc_md=__doc__,
    params={
        "samples": Param(360_000, type="integer", description="samples to train on, over epochs"),
        "inject": Param(
            "1:raise:140000,2:kill:260000",
            type="string",
            description="failures to induce, SUBMISSION:raise|kill:CURSOR, or nothing",
        ),
        "compile": Param(True, type="boolean", description="use torch.compile"),
        "data": Param(f"{HOME}/data", description="folder of MovieLens-100k, fetched if empty"),
        "registry": Param(f"{HOME}/registry", description="folder of the model registry"),
    },
) as dag:
    train = TorchXTrainingOperator(
        task_id="train",
        component="train",
        component_args=[
            "--m",
            f"{RANKER}.train",
            "--",
            "--samples={{ params.samples }}",
            "--data={{ params.data }}",
            "--inject={{ params.inject }}",
            "{{ '--compile' if params.compile else '--no-compile' }}",
        ],
        retries=2,
    )
    publish = ModelPublishOperator(
        task_id="publish",
        checkpoint=train.output,
        model=f"{RANKER}.model:build",
        registry="{{ params.registry }}",
        name="ranker",
    )
    train >> publish
