"""A small client of Airflow's REST API: what the demo and the system tests ask of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import requests

from airflow_ett.errors import DemoError

T = TypeVar("T")

_TRIES = 8
_PAUSE_S = 0.5


class Api:
    """One user's view of Airflow's REST API.

    An answer other than 2xx raises :class:`DemoError` with Airflow's own words; SQLite's passing
    "Database error" and a server that is just starting are tried again for a few seconds.
    """

    def __init__(self, url: str, user: str, password: str) -> None:
        self.url = url.rstrip("/")
        self._user = user
        self._password = password
        self._http = requests.Session()
        # A proxy from the environment must not get loopback traffic.
        self._http.trust_env = False

    @property
    def token(self) -> str:
        """A fresh bearer token of this user."""
        login = {"username": self._user, "password": self._password}
        answer = self._send("POST", "/auth/token", json=login)
        return str(answer.json()["access_token"])

    def request(self, method: str, path: str, **arguments: Any) -> requests.Response:
        """Send a request below ``/api/v2`` as this user; arguments as for ``requests``."""
        if "Authorization" not in self._http.headers:
            self._http.headers["Authorization"] = f"Bearer {self.token}"
        return self._send(method, f"/api/v2{path}", **arguments)

    def get(self, path: str, **params: Any) -> Any:
        """Return the JSON at ``path`` (below ``/api/v2``)."""
        return self.request("GET", path, params=params).json()

    def health(self) -> dict[str, str]:
        """Return each component's state by name, as the API server sees it; needs no token."""
        answer = self._http.get(f"{self.url}/api/v2/monitor/health", timeout=5).json()
        return {name: str(part.get("status")) for name, part in answer.items() if part}

    def wait_for_dag(self, dag_id: str, timeout_s: float = 60.0) -> None:
        """Wait until the DAG processor has read the DAG; else raise with all import errors."""

        def known() -> bool:
            return bool(self.get("/dags", dag_id_pattern=dag_id)["total_entries"])

        try:
            wait_until(known, f"DAG {dag_id} is parsed", timeout_s)
        except DemoError as error:
            problems = [e["stack_trace"] for e in self.get("/importErrors")["import_errors"]]
            raise DemoError("\n".join([str(error), *problems])) from None

    def trigger(self, dag_id: str, run_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Unpause the DAG, start a run called ``run_id`` and return that name."""
        self.request("PATCH", f"/dags/{dag_id}", json={"is_paused": False})
        body = {"dag_run_id": run_id, "logical_date": None, "conf": dict(conf or {})}
        self.request("POST", f"/dags/{dag_id}/dagRuns", json=body)
        return run_id

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Return the DAG run's state."""
        return str(self.get(f"/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def wait_for_run(self, dag_id: str, run_id: str, timeout_s: float = 120.0) -> str:
        """Wait until the run has ended and return its state."""

        def ended() -> str:
            state = self.run_state(dag_id, run_id)
            return state if state in {"success", "failed"} else ""

        return wait_until(ended, f"run {run_id} of {dag_id} ends", timeout_s)

    def tasks(self, dag_id: str, run_id: str) -> dict[str, dict[str, Any]]:
        """Return the run's task instances (unmapped ones) by task id."""
        answer = self.get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances")
        return {task["task_id"]: task for task in answer["task_instances"]}

    def task(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        """Return one task instance: ``state``, ``try_number``, ``start_date`` and so on."""
        answer: dict[str, Any] = self.get(_task(dag_id, run_id, task_id))
        return answer

    def tries(self, dag_id: str, run_id: str, task_id: str) -> list[dict[str, Any]]:
        """Return all tries of a task instance, oldest first."""
        answer: list[dict[str, Any]] = self.get(f"{_task(dag_id, run_id, task_id)}/tries")[
            "task_instances"
        ]
        return sorted(answer, key=lambda task: task["try_number"])

    def wait_for_task(
        self, dag_id: str, run_id: str, task_id: str, *states: str, timeout_s: float = 120.0
    ) -> dict[str, Any]:
        """Wait until the task instance is in one of ``states`` and return it."""

        def there() -> dict[str, Any] | None:
            task = self.task(dag_id, run_id, task_id)
            return task if task["state"] in states else None

        wanted = f"{task_id} of {dag_id} run {run_id} is {' or '.join(states)}"
        return wait_until(there, wanted, timeout_s)

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int) -> str:
        """Return a try's log as text, one event a line."""
        path = f"{_task(dag_id, run_id, task_id)}/logs/{try_number}"
        headers = {"Accept": "application/json"}
        answer = self.request("GET", path, params={"full_content": True}, headers=headers).json()
        content = answer["content"]
        if isinstance(content, str):
            return content
        return "\n".join(_log_line(line) for line in content)

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """Return what a task pushed."""
        path = f"{_task(dag_id, run_id, task_id)}/xcomEntries/{key}"
        return self.get(path, deserialize=False, stringify=False)["value"]

    def clear(self, dag_id: str, run_id: str, *task_ids: str) -> None:
        """Clear task instances of the run, whatever their state, as the button in the UI does."""
        body = {
            "dry_run": False,
            "dag_run_id": run_id,
            "task_ids": list(task_ids),
            "only_failed": False,
            "reset_dag_runs": True,
        }
        self.request("POST", f"/dags/{dag_id}/clearTaskInstances", json=body)

    def mark(self, dag_id: str, run_id: str, task_id: str, state: str) -> None:
        """Set a task instance's state to ``failed``, ``success`` or ``skipped``, as the UI does."""
        self.request("PATCH", _task(dag_id, run_id, task_id), json={"new_state": state})

    def _send(self, method: str, path: str, **arguments: Any) -> requests.Response:
        problem = ""
        for _ in range(_TRIES):
            try:
                answer = self._http.request(method, self.url + path, timeout=30, **arguments)
            except requests.ConnectionError as error:
                problem = str(error)
            else:
                if answer.ok:
                    return answer
                problem = f"{answer.status_code} {answer.text[:500]}"
                if answer.status_code < 500 and "Database error" not in answer.text:
                    break
            time.sleep(_PAUSE_S)
        raise DemoError(f"Airflow at {self.url} answered {method} {path} with {problem}")


def wait_until(
    check: Callable[[], T | None], what: str, timeout_s: float, pause_s: float = 0.25
) -> T:
    """Call ``check`` until it returns something true and return that.

    Raises :class:`DemoError` that names ``what`` after ``timeout_s`` seconds.
    """
    deadline = time.monotonic() + timeout_s
    while not (found := check()):
        if time.monotonic() >= deadline:
            raise DemoError(f"waited {timeout_s:.0f} s in vain until {what}")
        time.sleep(pause_s)
    return found


def _log_line(line: Mapping[str, Any]) -> str:
    """Return an event of a task log and the errors that it carries."""
    errors = [f"{e['exc_type']}: {e['exc_value']}" for e in line.get("error_detail") or ()]
    return ": ".join([str(line.get("event", line)), *errors])


def _task(dag_id: str, run_id: str, task_id: str) -> str:
    return f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
