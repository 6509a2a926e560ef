"""A relaunch avoids the hosts that lost the job before, where the scheduler offers that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.events import AttemptId, Cause, Layer
from airflow_ett.launch.abilities import AvoidsHosts
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.history import MOST_HOSTS, History, Submission
from airflow_ett.launch.schedulers.local_detached import LocalDetached
from tests.launch.contract.scripted import Scripted


class Excluding(Scripted):
    """Takes hosts to avoid as an option of its own."""

    def avoiding(self, cfg: Mapping[str, Any], hosts: Sequence[str]) -> Mapping[str, Any]:
        return {**cfg, "exclude": ",".join(hosts)}


def prepared_cfg(scheduler: Scripted, *hosts: str) -> Mapping[str, Any]:
    gateway = Gateway({"scripted": lambda session, **_: scheduler})
    return gateway.prepare("utils.sh", ["true"], "scripted", {"queue": "q"}, avoid=hosts).cfg


def test_a_scheduler_that_can_is_told_which_hosts(tmp_path: Path) -> None:
    scheduler = Excluding(tmp_path)
    assert prepared_cfg(scheduler, "gpu-3", "gpu-1") == {"queue": "q", "exclude": "gpu-3,gpu-1"}
    assert prepared_cfg(scheduler) == {"queue": "q"}


def test_one_that_cannot_is_left_alone(tmp_path: Path) -> None:
    assert prepared_cfg(Scripted(tmp_path), "gpu-3") == {"queue": "q"}
    assert not isinstance(LocalDetached("test", tmp_path), AvoidsHosts)  # it has but one


def test_the_hosts_of_attempts_that_the_infrastructure_lost_are_avoided(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, asked = bench.gateway.prepare, []

    def noted(**request: Any) -> Any:
        asked.append(request["avoid"])
        return prepare(**request)

    monkeypatch.setattr(bench.gateway, "prepare", noted)
    watcher = bench.watch()
    bench.reply(AttemptId(1), signal=9)
    bench.ends("FAILED")
    assert watcher.poll() is None
    assert asked[0] == []
    assert asked[-1] == ["gpu-1"]


def lost(number: int, host: str | None, cause: Cause = Cause.INFRASTRUCTURE) -> Submission:
    proof = {"host": host} if host else {}
    return Submission(number, "a", "d", Layer.RELAUNCH, 1, 0, ended=True, cause=cause, proof=proof)


def test_the_latest_come_first_each_once_and_not_too_many() -> None:
    hosts = ["a", "b", "a", None]
    history = History(submissions=[lost(n, host) for n, host in enumerate(hosts)])
    assert history.lost_hosts() == ["a", "b"]
    many = History(submissions=[lost(n, f"gpu-{n}") for n in range(20)])
    assert many.lost_hosts() == [f"gpu-{n}" for n in range(19, 19 - MOST_HOSTS, -1)]


def test_a_host_is_not_to_blame_for_another_cause() -> None:
    causes = (Cause.PREEMPTED, Cause.APPLICATION, Cause.OUT_OF_MEMORY)
    history = History(submissions=[lost(n, "a", cause) for n, cause in enumerate(causes)])
    assert history.lost_hosts() == []
