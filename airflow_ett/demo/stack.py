"""A real Airflow on this machine: separate processes, free ports, SQLite, LocalExecutor."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import requests

from airflow_ett.demo.processes import MARKER, end, of_session, of_stack
from airflow_ett.demo.rest import Api
from airflow_ett.errors import ConfigurationError, DemoError

COMPONENTS = ("api-server", "scheduler", "dag-processor", "triggerer")

_COMMANDS = {
    "api-server": ("api-server", "--workers", "1"),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
_HEALTH_NAMES = {
    "api-server": "metadatabase",
    "scheduler": "scheduler",
    "dag-processor": "dag_processor",
    "triggerer": "triggerer",
}
_START_LIMIT_S = 180.0
_STOP_GRACE_S = 5.0

ADMIN_ALONE: Mapping[str, str] = {"admin": "admin"}


class AirflowStack:
    """Airflow's components as child processes, each with a log file under ``home/logs``.

    ``dags`` is the DAGs folder, ``env`` overrides any variable. ``users`` maps names to roles of
    the SimpleAuthManager, an admin first; ``passwords`` are made anew. ``port`` is the API
    server's, 0 for a free one. Detached trainings that its tasks start belong to it, too:
    :meth:`stop` leaves no process behind.
    """

    def __init__(
        self,
        home: Path,
        *,
        dags: Path,
        env: Mapping[str, str] | None = None,
        users: Mapping[str, str] = ADMIN_ALONE,
        port: int = 0,
        components: tuple[str, ...] = COMPONENTS,
    ) -> None:
        self.home = home.absolute()
        self.components = components
        self.passwords = {user: secrets.token_urlsafe(12) for user in users}
        self.port = free_port(port)
        self.url = f"http://127.0.0.1:{self.port}"
        self._users = dict(users)
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self.env = {**self._environment(dags.absolute()), **(env or {})}
        self._api: Api | None = None

    @property
    def api(self) -> Api:
        """The REST API as the first user (an admin)."""
        if self._api is None:
            self._api = self.login(next(iter(self._users)))
        return self._api

    def login(self, user: str) -> Api:
        """Return the REST API as ``user``."""
        return Api(self.url, user, self.passwords[user])

    def start(self) -> None:
        """Create the database, start all components and wait until they are healthy.

        What an earlier stack in this home left running, after a crash for example, is ended first.
        Raises :class:`DemoError` with the end of a component's log when one fails to start.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        self._end_all()
        (self.home / "logs").mkdir(exist_ok=True)
        passwords = self.home / "passwords.json"
        passwords.touch(mode=0o600)
        passwords.write_text(json.dumps(self.passwords))
        try:
            self._migrate()
            for component in self.components:
                self.start_component(component)
            self.wait_healthy()
        except BaseException:
            self.stop()
            raise

    def start_component(self, component: str) -> None:
        """Start one component without waiting for it."""
        with self._log(component).open("ab") as log:
            self._children[component] = subprocess.Popen(
                [sys.executable, "-m", "airflow", *_COMMANDS[component]],
                env=self.env,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def pid(self, component: str) -> int:
        """Return the process number of a component, which leads a session of its own."""
        return self._children[component].pid

    def stop_component(self, component: str, *, grace_s: float = _STOP_GRACE_S) -> None:
        """End one component with all processes of its session (SIGKILL at once where 0)."""
        self._end_sessions([component], grace_s)

    def wait_healthy(self, timeout_s: float = _START_LIMIT_S) -> None:
        """Wait until the API server calls every component healthy."""
        deadline = time.monotonic() + timeout_s
        while unhealthy := self._unhealthy():
            for name, child in self._children.items():
                if child.poll() is not None:
                    raise DemoError(
                        f"Airflow's {name} ended with exit code {child.returncode}:\n"
                        f"{self.log_tail(name)}"
                    )
            if time.monotonic() >= deadline:
                logs = "\n".join(self.log_tail(name) for name in unhealthy)
                raise DemoError(
                    f"Airflow's {', '.join(unhealthy)} did not get healthy within "
                    f"{timeout_s:.0f} s:\n{logs}"
                )
            time.sleep(0.25)

    def stop(self) -> None:
        """End every process of this stack and of the tasks and trainings that it started."""
        # The API server goes last, so that the others can report their end to it.
        self._end_sessions([name for name in self._children if name != "api-server"])
        self._end_sessions(list(self._children))
        self._end_all()

    def log_tail(self, component: str, lines: int = 25) -> str:
        """Return the last lines of a component's log."""
        path = self._log(component)
        if not path.is_file():
            return ""
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])

    def _end_sessions(self, components: list[str], grace_s: float = _STOP_GRACE_S) -> None:
        children = [self._children.pop(name) for name in components]
        end(lambda: {p for child in children for p in of_session(child.pid)}, grace_s)
        for child in children:
            child.wait()

    def _end_all(self) -> None:
        if left := end(lambda: of_stack(self.home), _STOP_GRACE_S):
            pids = ", ".join(str(process.pid) for process in left)
            raise DemoError(f"processes {pids} of the Airflow in {self.home} would not end")

    def _migrate(self) -> None:
        with self._log("migrate").open("ab") as log:
            done = subprocess.run(
                [sys.executable, "-m", "airflow", "db", "migrate"],
                env=self.env,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=_START_LIMIT_S,
                check=False,
            )
        if done.returncode:
            raise DemoError(f"airflow db migrate failed:\n{self.log_tail('migrate')}")

    def _unhealthy(self) -> list[str]:
        try:
            health = self.api.health()
        except (requests.RequestException, ValueError):
            return list(self.components)
        return [c for c in self.components if health.get(_HEALTH_NAMES[c]) != "healthy"]

    def _log(self, name: str) -> Path:
        return self.home / "logs" / f"{name}.log"

    def _environment(self, dags: Path) -> dict[str, str]:
        # Many short-lived processes: without bytecode files each would compile its modules anew.
        dropped = ("AIRFLOW", "_AIRFLOW", "PYTHONDONTWRITEBYTECODE")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
        users = ",".join(f"{user}:{role}" for user, role in self._users.items())
        return kept | {
            MARKER: str(self.home),
            # Without it Airflow's process titles overwrite the environment that /proc shows.
            "SPT_NOENV": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}",
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": users,
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.home / "passwords.json"),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        }


def free_port(wanted: int) -> int:
    """Return ``wanted`` if it can be used on loopback, for 0 one that is free.

    Raises :class:`ConfigurationError` that names ``--port``.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except (OSError, OverflowError) as error:
            problem = getattr(error, "strerror", None) or "ports are numbers from 0 to 65535"
            raise ConfigurationError("--port", f"{wanted} cannot be used: {problem}") from None
        port: int = probe.getsockname()[1]
        return port
