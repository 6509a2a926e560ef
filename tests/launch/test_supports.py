"""What schedulers support, told from their interfaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from torchx.schedulers.api import Scheduler
from torchx.workspace import WorkspaceMixin

from airflow_ett.errors import LaunchError
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.schedulers.local_detached import LocalDetached
from airflow_ett.launch.supports import Supports, supports
from tests.launch.contract.scripted import DetailedScripted, Scripted


class Mute(Scripted):
    """Offers no log."""

    log_iter = Scheduler.log_iter


class Able(WorkspaceMixin[None], DetailedScripted):  # type: ignore[misc]
    """Offers all that there is."""

    def app_id(self, name: str, cfg: Mapping[str, Any]) -> str:
        return name

    def avoiding(self, cfg: Mapping[str, Any], hosts: Sequence[str]) -> Mapping[str, Any]:
        return cfg

    def workspace_opts(self) -> Any: ...

    def build_workspace_and_update_role(self, *args: Any, **kwargs: Any) -> None: ...


def test_torchx_alone_leaves_open_how_replicas_end_and_how_often_they_start(tmp_path: Path) -> None:
    assert supports(Scripted(tmp_path)) == Supports(
        package="tests",
        exit_codes=None,
        requeues=None,
        avoids_hosts=False,
        workspaces=False,
        output="torchx",
        ids_are_names=False,
    )
    assert supports(Mute(tmp_path)).output == "none"


def test_each_interface_is_seen(tmp_path: Path) -> None:
    assert supports(Able(tmp_path)) == Supports(
        package="tests",
        exit_codes=True,
        requeues=True,
        avoids_hosts=True,
        workspaces=True,
        output="direct",
        ids_are_names=True,
    )


def test_local_detached(tmp_path: Path) -> None:
    found = supports(LocalDetached("test", tmp_path))
    assert (found.package, found.exit_codes, found.output) == ("airflow_ett", True, "direct")
    assert found.ids_are_names


@pytest.mark.parametrize("method", ["list", "reach"])
def test_it_is_asked_in_its_own_way_or_for_a_list(tmp_path: Path, method: str) -> None:
    def refuse(cfg: Mapping[str, Any] | None = None) -> None:
        raise OSError(f"no route, {cfg}")

    scheduler: Any = Scripted(tmp_path)
    gateway = Gateway({"scripted": lambda session, **_: scheduler})
    gateway.reach("scripted", {"queue": "q"})
    setattr(scheduler, method, refuse)
    told = {"queue": "q"} if method == "reach" else None
    with pytest.raises(LaunchError, match=f"could not ask scripted: OSError: no route, {told}"):
        gateway.reach("scripted", {"queue": "q"})
