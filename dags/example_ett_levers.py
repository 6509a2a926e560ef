"""Train a sharded recommendation model with every lever on, then publish it on a CPU.

Two failures are induced. A parameter per lever switches it off, for a comparison of two runs: the
training's code does not change for it, the operator's ``env`` says so, and the Session heeds it.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, Param

from airflow_ett import config
from airflow_ett.operators import ModelPublishOperator, TorchXTrainingOperator

DLRM = "airflow_ett.examples.dlrm"
HOME = config.airflow_home() / "ett"

with DAG(
    "example_ett_levers",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    tags=["ett", "example"],
    doc_md=__doc__,
    params={
        "samples": Param(800_000, type="integer", description="samples to train on"),
        "ranks": Param(1, type="integer", minimum=1, maximum=4, description="processes"),
        "inject": Param(
            "1:kill:300000,2:kill:600000",
            type="string",
            description="failures to induce, SUBMISSION:raise|kill:CURSOR, or nothing",
        ),
        "compile": Param(True, type="boolean", description="use torch.compile"),
        "warmup_s": Param(4.0, type="number", description="seconds until the data is warm"),
        **{
            lever: Param(True, type="boolean", description=f"{variable}=0 if false")
            for lever, variable in config.SWITCHES.items()
        },
        "registry": Param(f"{HOME}/registry", description="folder of the model registry"),
    },
) as dag:
    train = TorchXTrainingOperator(
        task_id="train",
        component="train",
        component_args=[
            "-j",
            "1x{{ params.ranks }}",
            "--m",
            f"{DLRM}.train",
            "--",
            "--samples={{ params.samples }}",
            "--inject={{ params.inject }}",
            "--warmup-s={{ params.warmup_s }}",
            "{{ '--compile' if params.compile else '--no-compile' }}",
        ],
        env={
            variable: f"{{{{ '1' if params.{lever} else '0' }}}}"
            for lever, variable in config.SWITCHES.items()
        },
        retries=2,
    )
    publish = ModelPublishOperator(
        task_id="publish",
        checkpoint=train.output,
        model=f"{DLRM}.model:build",
        registry="{{ params.registry }}",
        name="dlrm",
    )
    train >> publish
