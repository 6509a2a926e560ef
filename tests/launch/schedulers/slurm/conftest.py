"""A login node of our own, and what tests do with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_ett.errors import LaunchError
from airflow_ett.launch.schedulers.slurm import ssh
from airflow_ett.launch.schedulers.slurm.ssh import Ssh
from tests.slurm.sshd import Sshd


@pytest.fixture(scope="module")
def running() -> Iterator[Sshd]:
    sshd = Sshd({"OF_THE_LOGIN_NODE": "leaks", "SLURM_CONF": "/etc/slurm.conf"})
    sshd.start()
    yield sshd
    sshd.stop()


@pytest.fixture
def sshd(running: Sshd, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    """An sshd that Airflow's connection ``login`` leads to; it may be killed."""
    monkeypatch.setenv("AIRFLOW_CONN_LOGIN", running.uri())
    monkeypatch.setattr(ssh, "AGAIN_S", 0.0)
    yield running
    if not running.listens():
        running.start()


@pytest.fixture
def there(sshd: Sshd) -> Ssh:
    return Ssh("login")


def sh(there: Ssh, script: str, text: str = "") -> str:
    return there.run(("sh", "-c", script), text).out


def refuse(text: str, act: Any) -> float:
    """Have ``act`` fail with this text; return how long that took, in seconds."""
    began = time.monotonic()
    with pytest.raises(LaunchError, match=text):
        act()
    return time.monotonic() - began
