"""The API that holds job logs, served for real: uvicorn on loopback, in a thread or a process.

::

    with serving(url) as api:
        storage = HttpStorage(api.place(job), api.token(job))

Several servers may serve one database. ``python -m tests.api.server URL PORT`` is one to be killed.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from airflow_ett.api.guard import Backend
from airflow_ett.api.limits import Limiter
from airflow_ett.api.logs import router
from airflow_ett.storage.http import HttpStorage
from airflow_ett.storage.tokens import issue
from airflow_ett.store import Store, open_store

SECRET = "a-secret-of-32-characters-or-more"
PREFIX = "/ett/api/v1"
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Api:
    """A running API server. ``url`` is what ``[ett] api_url`` says, ``store`` its database."""

    url: str
    secret: str
    store: Store

    @property
    def base(self) -> str:
        """The address below which the routes are."""
        return self.url + PREFIX

    def place(self, job: str) -> str:
        """Return the place of a job."""
        return f"{self.base}/logs/{job}"

    def token(self, job: str, role: str = "launcher", expires_s: float = 3600) -> Callable[[], str]:
        """Return what returns a token, always the same one."""
        token = issue(self.secret, job, role, expires_s)
        return lambda: token

    def storage(self, job: str, role: str = "launcher", patience_s: float = 20) -> HttpStorage:
        """Return a client."""
        return HttpStorage(self.place(job), self.token(job, role), patience_s=patience_s)


def create_app(store: Store, secret: str = SECRET, limiter: Limiter | None = None) -> FastAPI:
    """Return an app with the job logs' routes alone."""
    app = FastAPI()
    app.include_router(router(lambda: Backend(store, secret), limiter), prefix=PREFIX)
    return app


@contextlib.contextmanager
def serving(
    url: str, *, secret: str = SECRET, limiter: Limiter | None = None, port: int = 0
) -> Iterator[Api]:
    """Serve the database at ``url``, whose tables are there, in a thread of this process."""
    store = open_store(url, patience_s=10)
    with (
        contextlib.closing(store),
        serving_app(create_app(store, secret, limiter), port) as address,
    ):
        yield Api(address, secret, store)


@contextlib.contextmanager
def serving_app(app: FastAPI, port: int = 0) -> Iterator[str]:
    """Serve an app in a thread of this process; return its address."""
    listening = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        _wait(lambda: server.started)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()


class ServerProcess:
    """A server in a process of its own, that can be killed and started again at the same port."""

    def __init__(self, url: str, secret: str = SECRET) -> None:
        self._database = url
        self._secret = secret
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [sys.executable, "-m", "tests.api.server", self._database, str(self.port)]
        self._process = subprocess.Popen([*command, self._secret], cwd=_ROOT)
        _wait(self._answers)

    def kill(self) -> None:
        """Kill it, whatever it is doing."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(10)
            self._process = None

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


@contextlib.contextmanager
def server_process(url: str) -> Iterator[tuple[ServerProcess, Api]]:
    """Serve the database at ``url`` in a process of its own."""
    process = ServerProcess(url)
    process.start()
    try:
        with contextlib.closing(open_store(url)) as store:
            yield process, Api(f"http://127.0.0.1:{process.port}", SECRET, store)
    finally:
        process.kill()


def _wait(done: Callable[[], bool], within_s: float = 30) -> None:
    end = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < end, f"no API server within {within_s} s"
        time.sleep(0.02)


def _main(url: str, port: str, secret: str) -> None:
    app = create_app(open_store(url, patience_s=10), secret)
    uvicorn.run(app, port=int(port), lifespan="off", log_level="warning")


if __name__ == "__main__":
    _main(*sys.argv[1:])
