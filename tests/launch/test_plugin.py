"""Somebody else's TorchX scheduler, found by its entry point, from launch to end.

What TorchX's interface does not let it tell stays unknown: nothing is made up for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torchx.plugins

from airflow_ett.errors import ConfigurationError, LaunchError
from airflow_ett.events import AttemptId, Cause, JobState
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.limits import SETTLE_S
from airflow_ett.launch.request import Request
from airflow_ett.launch.status import ReplicaStatus, SchedulerStatus
from tests.launch.plugin import install


class Acme:
    """The plugin's side of the tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.says("PENDING")
        self.prints("")

    def says(self, state: str) -> None:
        (self._folder / "state").write_text(state)

    def prints(self, text: str) -> None:
        (self._folder / "log").write_text(text)

    @property
    def apps(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self._folder.glob("job-*")}

    @property
    def pool(self) -> str:
        return (self._folder / "pool").read_text()


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Acme]:
    """Install the plugin for the test."""
    install(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "acme").mkdir()
    monkeypatch.setenv("ACME_FOLDER", str(tmp_path / "acme"))
    torchx.plugins.registry().clear()
    yield Acme(tmp_path / "acme")
    torchx.plugins.registry().clear()
    sys.modules.pop("acme_torchx", None)


@pytest.fixture
def watched(acme: Acme, bench: Any) -> Any:
    """A job on the plugin, just submitted."""
    bench.gateway = Gateway()
    bench.request = Request("utils.echo", [], "acme", cfg={"pool": "large"})
    return bench.watch()


def test_a_training_goes_from_launch_to_its_end(acme: Acme, bench: Any, watched: Any) -> None:
    ((app_id, name),) = acme.apps.items()
    assert (app_id, acme.pool) == ("job-17", "large")
    assert watched.handle == "acme://ett/job-17"
    assert bench.gateway.find(name, "acme") == watched.handle
    acme.says("RUNNING")
    acme.prints("step 1\nstep 2 is half")
    bench.tick(1)
    assert watched.poll() is None
    assert watched.read_log() == "step 1\n"
    acme.says("SUCCEEDED")
    bench.tick(1)
    outcome = watched.poll()
    assert (outcome.cause, outcome.handle) == (None, "acme://ett/job-17")
    assert bench.job_state() is JobState.SUCCEEDED
    assert len(acme.apps) == 1


def test_what_it_does_not_tell_is_unknown(acme: Acme, watched: Any) -> None:
    acme.says("RUNNING")
    assert Gateway().status(watched.handle) == SchedulerStatus(
        "RUNNING", raw="RUNNING", restart=-1, replicas=(ReplicaStatus("trainer", 0, "RUNNING"),)
    )
    assert Gateway().log_location(watched.handle) is None
    assert Gateway().page(watched.handle) is None


def test_a_failure_has_no_code_no_host_and_no_cause_of_our_making(
    acme: Acme, bench: Any, watched: Any
) -> None:
    acme.says("RUNNING")
    bench.tick(1)
    assert watched.poll() is None
    acme.says("FAILED")
    bench.tick(1)
    assert watched.poll() is None  # it may yet be a requeue
    bench.tick(SETTLE_S)
    outcome = watched.poll()
    assert outcome.cause is Cause.UNKNOWN
    assert "FAILED" in outcome.message
    (end,) = bench.events("attempt_ended")
    assert end.attempt == AttemptId(1, 0)
    assert not {"exit_code", "signal", "host", "replica"} & set(end.data["evidence"])
    told = {"allocated_ns", "started_ns", "ended_ns", "reason", "hosts"}
    for event in bench.events("scheduler_state"):
        assert not told & set(event.data)


def test_a_cancel_reaches_it_once(acme: Acme, bench: Any, watched: Any) -> None:
    acme.says("RUNNING")
    bench.tick(1)
    assert watched.poll() is None
    watched.user_cancel(wait_s=0)
    assert Gateway().status(watched.handle).state == "CANCELLED"
    assert bench.job_state() is JobState.CANCELLED


def test_one_that_cannot_be_set_up_is_away_and_not_an_unknown_error() -> None:
    def away(session_name: str, **_: object) -> Any:
        raise ConnectionError("no route to acme")

    gateway = Gateway({"acme": away})
    with pytest.raises(LaunchError, match="could not set up acme: ConnectionError: no route"):
        gateway.status("acme://ett/job-17")


def test_one_that_lacks_a_package_names_it() -> None:
    def lacking(session_name: str, **_: object) -> Any:
        raise ModuleNotFoundError("No module named 'acme_client'", name="acme_client")

    with pytest.raises(ConfigurationError, match="missing: No module named 'acme_client'"):
        Gateway({"acme": lacking}).check("acme")
