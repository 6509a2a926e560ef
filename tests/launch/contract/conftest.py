"""Every scheduler that takes part in the contract, and whole jobs on the scripted one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.events import AttemptId
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.request import Request
from airflow_ett.launch.root import Root
from tests.launch.conftest import Bench
from tests.launch.contract import harness as schedulers
from tests.launch.contract import on_docker
from tests.launch.contract.harness import Harness

_MODULES = (schedulers, on_docker)


def _harnesses() -> list[type[Harness]]:
    found = [
        value
        for module in _MODULES
        for _, value in inspect.getmembers(module, inspect.isclass)
        if issubclass(value, Harness) and not inspect.isabstract(value)
    ]
    return list(dict.fromkeys(found))


def _params() -> list[Any]:
    """Return the harnesses as parameters, each marked as what it needs of this machine."""
    return [
        pytest.param(found, id=found.__name__, marks=[getattr(pytest.mark, n) for n in found.marks])
        for found in _harnesses()
    ]


@pytest.fixture(params=_params())
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    """A scheduler under test."""
    for server in request.param.needs:
        request.getfixturevalue(server)
    found: Harness = request.param(tmp_path)
    yield found
    found.close()


@dataclass
class WatchedJob:
    """One job on a real gateway, watched under a clock that the test turns."""

    bench: Any
    options: dict[str, Any]

    def __post_init__(self) -> None:
        self.watcher = self.bench.watch(**self.options)

    def look(self, *, after_s: float) -> Any:
        """Let time pass and look once."""
        self.bench.tick(after_s)
        return self.watcher.poll()

    def watch_again(self) -> None:
        """Go on as a trigger does that starts again elsewhere."""
        self.watcher = self.bench.watch(mode="trigger", **self.options)

    def trainer(self, kind: str, **data: Any) -> None:
        """Have rank 0 of the first attempt write an event."""
        self.bench.trainer(AttemptId(1)).append(kind, data)

    def states(self) -> list[str]:
        """Return what the log says of the scheduler's words."""
        return [event.data["state"] for event in self.bench.events("scheduler_state")]

    def ends(self) -> list[str | None]:
        """Return the causes of all attempts that are over."""
        return [event.data["cause"] for event in self.bench.events("attempt_ended")]


@pytest.fixture(params=["in_a_folder", "at_the_api"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    """A bench whose logs lie in run directories, or at the API, with checkpoints elsewhere."""
    root: Root = request.getfixturevalue(request.param)
    return Bench(root, checkpoints=str(tmp_path / "checkpoints") if root.is_api else "")


@pytest.fixture
def watch_job(bench: Any) -> Callable[..., WatchedJob]:
    """Submit a job through a gateway and watch it: ``watch_job(gateway, "slurm", limits=...)``."""

    def watch(
        gateway: Gateway, scheduler: str, cfg: dict[str, Any] | None = None, **options: Any
    ) -> WatchedJob:
        bench.gateway = gateway
        bench.request = Request("utils.echo", [], scheduler, cfg=cfg or {})
        return WatchedJob(bench, options)

    return watch
