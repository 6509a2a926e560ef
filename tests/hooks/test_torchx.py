"""The ``torchx`` connection."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk import Connection

from airflow_ett.errors import ConfigurationError
from airflow_ett.hooks.torchx import TorchXHook


def connect(monkeypatch: pytest.MonkeyPatch, **extra: Any) -> None:
    connection = Connection(conn_id="gpu", conn_type="torchx", extra=json.dumps(extra))
    monkeypatch.setattr(TorchXHook, "get_connection", classmethod(lambda cls, _id: connection))


def test_without_a_connection_the_options_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__CHECKPOINT_ROOT", "/checkpoints")
    hook = TorchXHook()
    assert hook.scheduler == "local_detached"
    assert hook.cfg == {}
    assert hook.checkpoint_root == "/checkpoints"


def test_a_connection_gives_scheduler_cfg_and_checkpoint_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect(monkeypatch, scheduler="slurm", cfg={"partition": "gpu"}, checkpoint_root="/fast")
    hook = TorchXHook("gpu")
    assert (hook.scheduler, hook.cfg) == ("slurm", {"partition": "gpu"})
    assert hook.checkpoint_root == "/fast"


def test_a_cfg_that_is_no_object_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, cfg=["partition"])
    with pytest.raises(ConfigurationError, match="cfg of 'gpu'") as caught:
        TorchXHook("gpu")
    assert caught.value.parameter == "torchx_conn_id"
