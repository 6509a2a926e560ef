"""Trainings on a Slurm that Airflow reaches by ssh alone: what breaks, and what need not be shared.

What trainings do otherwise they do by ssh, too: see ``pytest_generate_tests`` in ``conftest.py``.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_ett import config
from airflow_ett.launch.opening import open_job
from airflow_ett.launch.root import Root
from airflow_ett.launch.schedulers.slurm import Slurm, ssh
from airflow_ett.launch.watcher import Watcher
from airflow_ett.store import upgrade
from tests.api.server import serving
from tests.slurm import cluster, sshd
from tests.slurm.conftest import KEY, Training

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(cluster.missing() is not None, reason=f"no Slurm: {cluster.missing()}"),
    pytest.mark.skipif(sshd.missing() is not None, reason=f"no sshd: {sshd.missing()}"),
]


@pytest.fixture
def fragile(slurm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sshd.Sshd]:
    """A login node of the cluster that may be killed: connection ``fragile``."""
    pytest.importorskip("airflow.providers.ssh", reason="pip install 'airflow-ett[ssh]'")
    node = sshd.Sshd({"SLURM_CONF": slurm.conf})
    node.start()
    monkeypatch.setenv("AIRFLOW_CONN_FRAGILE", node.uri())
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    monkeypatch.setattr(ssh, "AGAIN_S", 0.0)
    yield node
    node.stop()


def test_a_training_goes_on_while_the_login_node_is_away(
    slurm: Any, tmp_path: Path, fragile: sshd.Sshd
) -> None:
    training = Training(slurm, tmp_path, {"ssh_conn_id": "fragile"})
    training.begin(steps=100)
    training.says("from 0")
    fragile.kill()
    assert [training.watcher.poll() for _ in range(3)] == [None] * 3
    assert training.words()[-1] == ("UNKNOWN", "UNKNOWN")
    fragile.start()
    assert training.ends().cause is None
    assert len(training.events("submitted")) == 1
    assert [attempt.id[:2] for attempt in training.metric().attempts] == [(1, 0)]


def test_airflow_and_the_cluster_need_not_share_a_folder(
    slurm_by_ssh: Any, login_node: sshd.Sshd, tmp_path: Path
) -> None:
    """The job's log is held by the API, what Slurm needs lies at the login's home."""
    database = f"sqlite:///{tmp_path}/ett.db"
    upgrade(database)
    training = Training(slurm_by_ssh, tmp_path, {"ssh_conn_id": "cluster"})
    training.slurm = Slurm("test", config.load().slurm_state_dir)
    with serving(database) as api:
        root = Root(api.base, api.secret)
        job = open_job(root, KEY, checkpoint_root="", try_number=1, max_tries=1)
        claim = job.log.claim(try_number=1, max_tries=1, mode="task")
        job = replace(job, token=lambda: root.trainer_token(job.log.key))
        request = training.write("print('step', number, flush=True)", steps=5)
        training.log, training.watcher = job.log, Watcher(job, claim, request, training.gateway)
        training.watcher.begin()
        outcome = training.ends()
        assert (outcome.cause, outcome.cursor) == (None, 5)
        output = training.slurm.output(training.app_id, "trainer", 0)
        assert str(output).startswith(
            f"sftp://127.0.0.1:{login_node.port}{login_node.home}/ett/slurm/"
        )
        assert "step 5" in training.output()
        (attempt,) = training.metric().attempts
        assert attempt.cursor_to == 5
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "apps").exists()


SLOW = """#!/bin/sh
cat > ~/script
touch ~/begun
sleep 2
exec {sbatch} "$@" < ~/script
"""


def test_an_sbatch_whose_session_breaks_is_waited_for(
    slurm: Any, tmp_path: Path, fragile: sshd.Sshd
) -> None:
    """It goes on where it is; who did not wait for it would submit a second job."""
    (fragile.home / "bin").mkdir()
    (fragile.home / ".bash_profile").write_text("PATH=~/bin:$PATH\n")
    slow = fragile.home / "bin" / "sbatch"
    slow.write_text(SLOW.format(sbatch=shutil.which("sbatch")))
    slow.chmod(0o755)

    def breaks() -> None:
        limit = time.monotonic() + 30
        while not (fragile.home / "begun").exists() and time.monotonic() < limit:
            time.sleep(0.05)
        fragile.cut()

    training = Training(slurm, tmp_path, {"ssh_conn_id": "fragile"})
    with ThreadPoolExecutor(1) as threads:
        broken = threads.submit(breaks)
        training.begin(steps=5)
        broken.result()
    assert training.ends().cause is None
    assert len(training.events("submit_intended")) == 1
    names = slurm.run("squeue", "--me", "--noheader", "--states=all", "--format=%j").split()
    assert names.count(training.app) == 1
