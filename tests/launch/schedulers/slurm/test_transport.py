"""Slurm's commands, run on this machine."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_ett.launch.schedulers.slurm.transport import Local

SUBMITTER = """
import sys
from pathlib import Path
from airflow_ett.launch.schedulers.slurm.transport import Local
local = Local()
with local.locked(Path(sys.argv[1])):
    local.run(("sh", "-c", f"echo $$ > {sys.argv[2]}; exec sleep 60"))
"""


def test_a_command_does_not_end_with_the_task_that_runs_it() -> None:
    """Airflow sends SIGTERM to a task's process group; an sbatch among it was half done."""
    told = Local().run((sys.executable, "-c", "import os; print(os.getpgrp(), os.getsid(0))"))
    group, session = map(int, told.out.split())
    assert group == session != os.getsid(0)


def test_a_command_that_outlives_its_submitter_keeps_others_out(tmp_path: Path) -> None:
    lock, pipe = tmp_path / "lock", tmp_path / "pid"
    os.mkfifo(pipe)
    with subprocess.Popen((sys.executable, "-c", SUBMITTER, str(lock), str(pipe))) as submitter:
        left = int(pipe.read_text())
        submitter.kill()
    with lock.open("w") as file:
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.kill(left, signal.SIGKILL)
        fcntl.flock(file, fcntl.LOCK_EX)
