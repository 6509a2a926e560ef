"""What a real Slurm makes of our options, and jobs of others that must not disturb ours."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.errors import LaunchError
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.schedulers.slurm import Slurm
from airflow_ett.launch.schedulers.slurm.transport import Local
from tests.slurm.cluster import missing
from tests.slurm.conftest import Training

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(missing() is not None, reason=f"no Slurm: {missing()}"),
]


@pytest.fixture
def submitted(slurm: Any, tmp_path: Path) -> Any:
    """Return what Slurm has of a job with these options."""
    scheduler = Slurm("test", tmp_path / "apps", Local())
    gateway = Gateway({"slurm": lambda session, **_: scheduler})

    def submit(**cfg: Any) -> dict[str, str]:
        prepared = gateway.prepare("train", ["-m", "x", "--cpu", "1"], "slurm", cfg)
        gateway.submit(prepared, "asks")
        job = (tmp_path / "apps" / "asks" / "job").read_text().strip()
        told = slurm.run("scontrol", "show", "job", job).split("\n")
        pairs = (pair.partition("=") for line in told for pair in line.split())
        whole = dict(line.strip().split("=", 1) for line in told if " Comment=" in line)
        return {name: value for name, _, value in pairs} | whole

    return submit


def test_every_option_arrives(slurm: Any, submitted: Any) -> None:
    told = submitted(
        partition="closed",
        time="1-2:03",
        nodelist="n2",
        exclude="n1",
        failed_nodes="n3",
        mem="200M",
        comment="it's, mine | a=b",
        mail_type="END,FAIL",
        mail_user="me@example.org",
        requeue=False,
        exclusive=True,
    )
    asked = {
        "Partition": "closed",
        "TimeLimit": "1-02:03:00",
        "ReqNodeList": "n2",
        "ExcNodeList": "n[1,3]",
        "MinMemoryNode": "200M",
        "Comment": "it's, mine | a=b",
        "MailType": "END,FAIL",
        "MailUser": "me@example.org",
        "Requeue": "0",
        "OverSubscribe": "NO",
    }
    assert {name: told[name] for name in asked} == asked


def test_a_reservation_is_asked_for(slurm: Any, submitted: Any) -> None:
    own = ("reservationname=conference", "starttime=now", "duration=60", "users=root", "nodes=n3")
    slurm.run("scontrol", "create", "reservation", *own)
    try:
        told = submitted(reservation="conference", partition="closed")
    finally:
        slurm.clear()
        slurm.run("scontrol", "delete", "reservationname=conference")
    assert told["Reservation"] == "conference"


def test_an_apps_folder_may_be_called_as_people_like(slurm: Any, tmp_path: Path) -> None:
    """Slurm fills in what follows a % in the name of an output."""
    scheduler = Slurm("test", tmp_path / "100%j of it's", Local())
    gateway = Gateway({"slurm": lambda session, **_: scheduler})
    prepared = gateway.prepare("utils.echo", ["--msg", "here"], "slurm")
    handle, limit = gateway.submit(prepared, "odd"), time.monotonic() + 30
    while not gateway.status(handle).terminal and time.monotonic() < limit:
        time.sleep(0.2)
    assert gateway.read_log(handle)[0] == "here\n"
    assert (tmp_path / "100%j of it's" / "odd" / "logs" / "batch").exists()


def test_what_no_node_suits_is_refused_and_leaves_no_app(slurm: Any, tmp_path: Path) -> None:
    """Slurm keeps a job of that name, as FAILED."""
    scheduler = Slurm("test", tmp_path / "apps", Local())
    gateway = Gateway({"slurm": lambda session, **_: scheduler})
    prepared = gateway.prepare("train", ["-m", "x"], "slurm", {"mem": "64G"})
    with pytest.raises(LaunchError, match="Requested node configuration is not available"):
        gateway.submit(prepared, "too-much")
    assert gateway.find("too-much", "slurm") is None


@pytest.fixture
def crowd(slurm: Any) -> Iterator[None]:
    """Others' jobs: a held array, a het job that runs and one that waits, one that never starts."""
    quiet = ("sbatch", "--mem=100", "--output=none")
    slurm.run(*quiet, "--array=1-5%2", "--hold", "--wrap", "true")
    slurm.run(*quiet, "--array=7-8", "--wrap", "true")
    slurm.run(*quiet, "-N1", ":", "-N1", "--mem=100", "--wrap", "sleep 60")
    slurm.run(*quiet, "-N1", ":", "-N1", "--mem=100", "--partition=closed", "--wrap", "true")
    slurm.run(*quiet, "--partition=closed", "--job-name=two words | a bar", "--wrap", "true")
    slurm.run(*quiet, "--job-name=", "--wrap", "exit 3")
    yield
    slurm.clear()


def test_others_jobs_in_the_queue_do_not_disturb(crowd: None, training: Training) -> None:
    """facts/torchx.md: one that never started made TorchX fail for all, and a finished one had the
    state of another."""
    training.begin(steps=20)
    training.says("from 0")
    assert training.gateway.find("never-submitted", "slurm") is None
    assert [app.app_id for app in training.slurm.list(training.way)] == [training.app_id]
    outcome = training.ends()
    assert outcome.cause is None
    assert training.words()[-2:] == [("RUNNING", "RUNNING"), ("SUCCEEDED", "COMPLETED")]
    assert training.gateway.status(str(outcome.handle)).state == "SUCCEEDED"
    training.watch(try_number=2)
    handle = str(training.watcher.handle)
    training.gateway.cancel(handle)
