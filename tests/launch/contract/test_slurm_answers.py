"""TorchX's own Slurm scheduler on answers of several Slurm generations: none of them is fatal."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torchx.schedulers.slurm_scheduler import create_scheduler

from airflow_ett.errors import LaunchError
from airflow_ett.launch.gateway import Gateway

HANDLE = "slurm://ett/41"

NODES_24_11 = {
    "list": "gpu-1",
    "allocation": [{"name": "gpu-1", "cpus": {"used": 8}, "memory": {"allocated": 1024}}],
}
NODES_22_05 = {
    "nodes": "gpu-1",
    "allocated_nodes": [{"nodename": "gpu-1", "cpus_used": 8, "memory_allocated": 1024}],
}


def job(state: Any, **resources: Any) -> str:
    """Return what ``squeue --json`` says of one job of one replica."""
    told = {
        "job_id": 41,
        "name": "trainer-0",
        "job_state": state,
        "command": "/jobs/41/torchx-sbatch.sh",
        "current_working_directory": "/jobs/41",
        **resources,
    }
    return json.dumps({"jobs": [told], "errors": []})


class Slurm:
    """The commands that TorchX runs, saying what a test wants."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self.says("squeue", "slurm_load_jobs error: Invalid job id specified", code=1)
        self.says("sacct", "Slurm accounting storage is disabled", code=1)
        self.says("sinfo", "slurm 24.11.5")
        self.says("sbatch", "41")
        self.gateway = Gateway({"slurm": create_scheduler})

    def says(self, command: str, text: str, *, code: int = 0) -> None:
        answer = self._folder / f"{command}.answer"
        answer.write_text(text)
        path = self._folder / command
        path.write_text(f"#!/bin/sh\ncat '{answer}'\nexit {code}\n")
        path.chmod(0o755)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return Slurm(tmp_path / "bin")


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (job(["PENDING"], job_resources=None), "PENDING"),
        (job(["RUNNING"], job_resources={"nodes": NODES_24_11}), "RUNNING"),
        (job("RUNNING", job_resources=NODES_22_05), "RUNNING"),
        (job("SUSPENDED", job_resources={"nodes": "gpu-1"}), "PENDING"),
        (job("PREEMPTED", job_resources=NODES_22_05), "FAILED"),
        (job("SPECIAL_EXIT", job_resources=NODES_22_05), "UNKNOWN"),
    ],
)
def test_r16_what_torchx_can_read_is_a_state(slurm: Slurm, answer: str, state: str) -> None:
    slurm.says("squeue", answer)
    assert slurm.gateway.status(HANDLE).state == state


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (job("PENDING"), "KeyError: 'job_resources'"),
        (job(["RUNNING"], job_resources=None), "AttributeError"),
        ('{"jobs": [', "JSONDecodeError"),
    ],
)
def test_r16_what_torchx_cannot_read_is_a_launch_error_with_its_traceback_at_debug_level(
    slurm: Slurm, caplog: pytest.LogCaptureFixture, answer: str, error: str
) -> None:
    slurm.says("squeue", answer)
    caplog.set_level(logging.DEBUG, "airflow_ett.launch.gateway")
    with pytest.raises(LaunchError, match=f"could not ask for {HANDLE}: {error}"):
        slurm.gateway.status(HANDLE)
    (record,) = [r for r in caplog.records if r.name == "airflow_ett.launch.gateway"]
    assert record.levelno == logging.DEBUG
    assert record.exc_info


def test_r16_one_answer_that_cannot_be_read_fails_no_task(
    slurm: Slurm, watch_job: Callable[..., Any]
) -> None:
    watched = watch_job(slurm.gateway, "slurm")
    readable = job(["RUNNING"], job_resources={"nodes": NODES_24_11})
    for answer in (readable, job("PENDING"), readable, job(["RUNNING"], job_resources=None)):
        slurm.says("squeue", answer)
        assert watched.look(after_s=5) is None
    slurm.says("squeue", "", code=1)
    slurm.says("sacct", "JobID|JobName|State\n41|trainer-0|COMPLETED\n")
    assert watched.look(after_s=5).cause is None


def test_s06_without_accounting_the_trainers_own_end_decides(
    slurm: Slurm, watch_job: Callable[..., Any]
) -> None:
    watched = watch_job(slurm.gateway, "slurm")
    slurm.says("squeue", job(["RUNNING"], job_resources={"nodes": NODES_24_11}))
    assert watched.look(after_s=5) is None
    watched.trainer("session_ended", outcome="success")
    slurm.says("squeue", json.dumps({"jobs": []}))
    assert watched.look(after_s=5) is None
    outcome = watched.look(after_s=61)
    assert outcome.cause is None
    assert "The scheduler has forgotten the app" in outcome.message


def test_s06_without_accounting_and_without_its_word_the_job_has_vanished(
    slurm: Slurm, watch_job: Callable[..., Any]
) -> None:
    watched = watch_job(slurm.gateway, "slurm")
    assert watched.look(after_s=5) is None
    outcome = watched.look(after_s=61)
    assert outcome.cause == "vanished"
    assert "where accounting is off" in outcome.message
