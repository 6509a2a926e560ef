"""The fixture itself: several at once, and nothing left behind, however the session ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import Cluster, missing

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(missing() is not None, reason=f"no Slurm: {missing()}"),
]

# What is started in the background without a shell's job control inherits that SIGINT is ignored.
SESSION = """
import signal
from tests.slurm.cluster import Cluster
signal.signal(signal.SIGINT, signal.default_int_handler)
cluster = Cluster(1, accounting=False)
cluster.start()
cluster.run("sbatch", "--output=none", "--wrap", "setsid sleep 1000")
cluster.until(lambda: cluster.run("squeue", "-h", "-t", "running"))
print(cluster.folder, flush=True)
input()
"""


def until(true: Callable[[], bool], timeout_s: float = 10) -> None:
    limit = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.05)


def of(folder: Path) -> list[int]:
    """Return the processes of a cluster, which all have its folder in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


@pytest.fixture
def session(repo: Path) -> Any:
    """A test session of one cluster with a job that would outlive its script, and its folder."""
    process = subprocess.Popen(
        (sys.executable, "-c", SESSION),
        cwd=repo,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    yield process, folder
    process.kill()
    process.wait()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_session_that_is_killed_leaves_nothing(session: Any, how: signal.Signals) -> None:
    process, folder = session
    assert folder.is_dir()
    assert len(of(folder)) > 5
    os.kill(process.pid, how)
    until(lambda: not folder.exists() and not of(folder))
    assert str(folder) not in Path("/proc/mounts").read_text()


def test_one_that_is_stopped_leaves_nothing_and_two_do_not_meet(slurm: Any) -> None:
    other = Cluster(2, accounting=False)
    other.start()
    try:
        other.run("sbatch", "--job-name=here", "--output=none", "--wrap", "sleep 100")
        assert other.run("squeue", "-h", "-o", "%j") == "here"
        assert slurm.run("squeue", "-h", "-o", "%j") == ""
        assert slurm.run("sinfo", "-h", "-p", "train", "-o", "%N") == "n[1-3]"
    finally:
        folder = other.folder
        other.stop()
    assert not folder.exists()
    assert of(folder) == []


def test_daemons_that_were_killed_start_again_and_leave_nothing() -> None:
    cluster = Cluster(1, accounting=False)
    cluster.start()
    try:
        for daemon in ("slurmctld", "n1"):
            cluster.kill(daemon)
            cluster.start_again(daemon)
        cluster.until(lambda: cluster.run("sinfo", "-h", "-t", "idle", "-p", "train"))
    finally:
        folder = cluster.folder
        cluster.stop()
    assert of(folder) == []


def test_a_cluster_that_does_not_come_up_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.slurm.cluster._SLURM", "ClusterName=test\nNonsense=1\n{accounting}")
    cluster = Cluster(1, accounting=False)
    with pytest.raises(RuntimeError, match="slurmctld did not come up"):
        cluster.start()
    assert not cluster.folder.exists()
