"""Docker's part in the contract: our scheduler and Docker's own client, on an Engine made up."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from docker.client import DockerClient

from airflow_ett.launch.gateway import Prepared
from airflow_ett.launch.schedulers.docker import Docker
from tests.launch.contract.harness import Harness
from tests.launch.schedulers.docker.engine import Container, Engine, serving


class OnDocker(Harness):
    """Containers that run nothing; the Engine's address lies in the folder."""

    scheduler = "local_docker"

    def __init__(self, folder: Path) -> None:
        self.engine = Engine()
        self._open = ExitStack()
        (folder / "address").write_text(self._open.enter_context(serving(self.engine)))
        super().__init__(folder)

    @staticmethod
    def connect(folder: Path) -> Docker:
        return Docker("test", DockerClient((folder / "address").read_text()))

    def prepared(self) -> Prepared:
        return self.gateway.prepare("utils.echo", [], self.scheduler)

    def queued(self, name: str) -> str:
        self.engine.holds = True
        return self.gateway.submit(self.prepared(), name)

    def succeed(self, handle: str) -> None:
        self._container(handle).end(0)

    def fail(self, handle: str, code: int) -> None:
        self._container(handle).end(code)

    def say(self, handle: str, text: str) -> None:
        self._container(handle).say(text.encode())

    def close(self) -> None:
        self.backend._docker_client.close()
        self._open.close()

    def _container(self, handle: str) -> Container:
        (one,) = self.engine.of(self.app_id(handle))
        return one
