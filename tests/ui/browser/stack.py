"""A real Airflow below a base path, with the gallery's Dags, runs and store, and two users."""

import os
import secrets
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from airflow_ett.demo.rest import wait_until
from airflow_ett.demo.stack import AirflowStack
from tests.ui.gallery.names import (
    DAGS,
    DAILY,
    FIRST_RUN,
    HEBREW,
    HOSTILE_RUNS,
    LIVE_RUN,
    LONG,
    MANY,
    NAMES,
    ONE,
    SEALED,
    SECRET,
    STEADY,
    STEADY_RUN,
    SWEEP,
    SWEEP_RUN,
    UNTRAINED,
)

HERE = Path(__file__).parent
REPO = HERE.parents[2]
BASE_PATH = "/team-a"
USERS = {"admin": "admin", "bob": "viewer"}

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
"""How Chromium is started."""


def airflow_stack(home: Path, **env: str) -> AirflowStack:
    """Return an Airflow that is not started; its ETT% store is that of the gallery in ``home``."""
    stack = AirflowStack(
        home,
        dags=HERE / "dags",
        users=USERS,
        components=("api-server", "dag-processor"),
        env={
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(HERE / "plugins"),
            "AIRFLOW__CORE__AUTH_MANAGER": "tests.ui.browser.auth.GuardedAuthManager",
            "AIRFLOW__ETT__API_SECRET": secrets.token_urlsafe(32),
            "AIRFLOW__ETT__METRICS_TOKEN": secrets.token_urlsafe(32),
            "AIRFLOW__SCHEDULER__ALLOWED_RUN_ID_PATTERN": ".*",
            "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(REPO)])),
            **env,
        },
    )
    stack.url += BASE_PATH
    stack.env["AIRFLOW__API__BASE_URL"] = stack.url
    return stack


class Run(NamedTuple):
    """A run to make, and how Airflow has it."""

    dag_id: str
    run_id: str
    state: str = "success"


def airflows_runs(runs: Mapping[str, str]) -> list[Run]:
    """Return the runs that Airflow's own pages are opened for, of the gallery's ``runs``."""
    ways = {"failed": "failed", "broken": "failed", "good": "success", "partial": "success"}
    daily = [Run(DAILY, runs[name], state) for name, state in ways.items()]
    live = [Run(DAILY, LIVE_RUN, "running"), Run(STEADY, STEADY_RUN, "running")]
    one = [Run(dag_id, FIRST_RUN) for dag_id in (ONE, SECRET, SEALED, UNTRAINED, HEBREW, LONG)]
    hostile = [Run(NAMES, run_id) for run_id in HOSTILE_RUNS.values()]
    return [*daily, *live, *one, *hostile, Run(MANY, runs["newest"]), Run(SWEEP, SWEEP_RUN)]


def make_runs(stack: AirflowStack, runs: Iterable[Run]) -> None:
    """Wait for all Dags, then make their runs; no scheduler is there to change their states."""
    api = stack.api

    def known() -> bool:
        return bool(api.get("/dags", limit=1)["total_entries"] >= len(DAGS))

    wait_until(known, "all Dags are parsed", 60)
    runs = list(runs)
    for number, run in enumerate(runs):
        body = {"dag_run_id": f"manual__{number}", "logical_date": None}
        api.request("POST", f"/dags/{run.dag_id}/dagRuns", json=body)
    _rename(stack.home / "airflow.db", runs)


def _rename(database: Path, runs: list[Run]) -> None:
    """Give the runs their ids and states: the API keeps the scheduler's ids for itself."""
    with sqlite3.connect(database, timeout=30) as connection:
        for number, run in enumerate(runs):
            made = {"made": f"manual__{number}", **run._asdict()}
            for table in ("dag_run", "task_instance"):
                connection.execute(
                    f"UPDATE {table} SET run_id = :run_id, state = :state,"
                    " start_date = CURRENT_TIMESTAMP"
                    " WHERE dag_id = :dag_id AND run_id = :made",
                    made,
                )
