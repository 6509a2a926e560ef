"""An API server, the scheduler on it, and jobs that are watched there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.request import Request
from airflow_ett.launch.schedulers.kubernetes import asking, create_scheduler
from airflow_ett.launch.schedulers.kubernetes.scheduler import Kubernetes
from tests.launch.conftest import Bench
from tests.launch.contract.conftest import WatchedJob
from tests.launch.schedulers.kubernetes.pods import Pod
from tests.launch.schedulers.kubernetes.server import Server, serving


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """An API server whose every answer is asked for anew."""
    pytest.importorskip("kubernetes")
    monkeypatch.setattr(asking, "FRESH_S", 0.0)
    with serving(tmp_path) as served:
        yield served


@pytest.fixture
def scheduler(server: Server) -> Kubernetes:
    """The scheduler on it."""
    return create_scheduler("test", kubeconfig=str(server.kubeconfig))


@pytest.fixture
def gateway(scheduler: Kubernetes) -> Gateway:
    """The gateway to it."""
    return Gateway({"kubernetes": lambda session, **_: scheduler})


class Scene(WatchedJob):
    """A watched training on the cluster; what happens there happens to its newest app."""

    server: Server
    namespace = "default"

    @property
    def app(self) -> str:
        return list(self.server.cluster.jobs)[-1][1]

    @property
    def apps(self) -> int:
        return len(self.server.cluster.jobs)

    def ends(self, write: Callable[[Pod], None], replica: int = 0) -> None:  # type: ignore[override]
        """Have a pod end."""
        self.server.cluster.end(self.namespace, self.app, write, replica)

    def taken(self, write: Callable[[Pod], None], replica: int = 0) -> None:
        """Have a pod deleted."""
        self.server.cluster.take(self.namespace, self.app, write, replica)

    def reaped(self) -> None:
        """Have deleted pods go."""
        self.server.cluster.reap(self.namespace, self.app)

    def causes(self) -> list[str | None]:
        """Return the causes of all attempts that are over."""
        return super().ends()


@pytest.fixture
def scene(server: Server, gateway: Gateway, bench: Bench) -> Callable[..., Scene]:
    """Submit a training and watch it: ``scene("2x1", {"requeue": True}, limits=...)``."""

    def make(shape: str = "1x1", cfg: dict[str, Any] | None = None, **options: Any) -> Scene:
        bench.gateway = gateway  # type: ignore[assignment]
        args = ["--image", "trainer:1", "--script", "/app/train.py", "-j", shape]
        bench.request = Request("train", args, "kubernetes", cfg=cfg or {})
        Scene.server, Scene.namespace = server, "default"
        return Scene(bench, options)

    return make
