"""The demo's course: start Airflow, train with two failures, publish, roll up, show the numbers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import airflow_ett
from airflow_ett.demo.closing import latency_lines, numbers
from airflow_ett.demo.follow import EventFollower, OutputFollower
from airflow_ett.demo.latency import retry_latencies
from airflow_ett.demo.narrate import Narrator
from airflow_ett.demo.stack import AirflowStack
from airflow_ett.errors import DemoError
from airflow_ett.events import Event
from airflow_ett.metric.report import render

DAG_ID = "example_ett_ranker"
ROLLUP_DAG_ID = "ett_fleet_rollup"

_RUN_ID = "demo"
_LIMIT_S = 900.0
_LOOK_S = 0.5
_PROGRESS_S = 5.0
_TOLD_OUTPUT = ("data: ", "torch.compile: ", "injected: ", "evaluation: ")
_TOLD_STATES = frozenset({"running", "deferred", "up_for_retry", "success", "failed"})


def example_dags() -> Path:
    """Return the folder of the example DAGs: inside an installed package, or the checkout's."""
    package = Path(airflow_ett.__file__).parent
    packaged = package / "example_dags"
    return packaged if packaged.is_dir() else package.parent / "dags"


class Demo:
    """One demo in ``home``, on the API server's ``port`` (0 for a free one).

    ``say`` gets the lines; ``params`` are laid over the example DAG's own.
    """

    def __init__(
        self,
        home: Path,
        port: int,
        say: Callable[[str], None],
        params: Mapping[str, Any] | None = None,
    ) -> None:
        self._home = home
        self._params = dict(params or {})
        self._print = say
        self._began = time.monotonic()
        # Compiled kernels stay in the home, so that every demo starts cold and nothing is left.
        self._scratch = home / "tmp"
        env = {"OMP_NUM_THREADS": "1", "TMPDIR": str(self._scratch)}
        self.stack = AirflowStack(home, dags=example_dags(), env=env, port=port)
        self._events: list[Event] = []
        self._event_follower = EventFollower(home / "ett" / "runs")
        self._output_follower = OutputFollower()
        self._narrator = Narrator()
        self._told_progress = self._began
        self._task_states: dict[str, str] = {}

    @property
    def tab(self) -> str:
        """The address of the DAG's tab in Airflow's UI."""
        return f"{self.stack.url}/dags/{DAG_ID}/plugin/ett"

    @property
    def run_tab(self) -> str:
        """The address of the training's tab, live while it runs."""
        return f"{self.stack.url}/dags/{DAG_ID}/runs/{_RUN_ID}/plugin/ett-run"

    @property
    def sign_in(self) -> str:
        """How to sign in to this demo's Airflow, whose password is made anew each time."""
        ((user, password),) = self.stack.passwords.items()
        return f"sign in as {user} with password {password}"

    def run(self) -> None:
        """Run the whole path; raise :class:`DemoError` where it does not end as it should."""
        self._say(f"starting Airflow in {self._home}")
        self._scratch.mkdir(exist_ok=True)
        self._cli("db", "upgrade")
        self.stack.start()
        self._say(f"Airflow is up at {self.stack.url} (logs in {self._home / 'logs'})")
        self._say(self.sign_in)
        self._train_and_publish()
        self._roll_up()
        self._show()

    def _train_and_publish(self) -> None:
        api = self.stack.api
        api.wait_for_dag(DAG_ID)
        api.trigger(DAG_ID, _RUN_ID, self._params)
        self._say(f"DAG {DAG_ID} started: train, fail twice, resume, publish")
        self._say(f"watch it live: {self.run_tab}")
        deadline = time.monotonic() + _LIMIT_S
        while (state := api.run_state(DAG_ID, _RUN_ID)) not in {"success", "failed"}:
            self._look()
            if time.monotonic() >= deadline:
                raise DemoError(f"the DAG run did not end within {_LIMIT_S:.0f} s")
            time.sleep(_LOOK_S)
        self._look()
        if state == "failed":
            failed = [name for name, now in self._task_states.items() if now == "failed"]
            raise DemoError(
                f"task {', '.join(failed)} of {DAG_ID} failed; look into {self._home}/logs/"
                f"dag_id={DAG_ID} and {self._home}/ett/local/*/logs"
            )

    def _roll_up(self) -> None:
        self.stack.api.wait_for_dag(ROLLUP_DAG_ID)
        self.stack.api.trigger(ROLLUP_DAG_ID, _RUN_ID)
        state = self.stack.api.wait_for_run(ROLLUP_DAG_ID, _RUN_ID)
        if state != "success":
            raise DemoError(f"the rollup {ROLLUP_DAG_ID} ended in state {state}")
        self._say(f"rollup {ROLLUP_DAG_ID} has summed the day up")

    def _show(self) -> None:
        jobs: list[dict[str, Any]] = json.loads(
            self._cli("report", "--dag-id", DAG_ID, "--json").stdout
        )
        if len(jobs) != 1:
            raise DemoError(f"the report tells of {len(jobs)} jobs of {DAG_ID} instead of one")
        latencies = latency_lines(retry_latencies(self._events))
        head = "From a trainer process's end to the start of the next:"
        for line in ["", render(jobs), "", *numbers(jobs[0]), "", head, *latencies, ""]:
            self._print(line)
        command = Path(sys.executable).with_name("airflow-ett")
        self._print(f"The numbers again: AIRFLOW_HOME={self._home} {command} report")

    def _look(self) -> None:
        """Tell what has happened since the last look."""
        events = self._event_follower.new()
        self._events += events
        for event in events:
            if line := self._narrator.line(event):
                self._say(line)
        for line in self._trainer_lines():
            self._say(f"trainer: {line}")
        for name, task in self.stack.api.tasks(DAG_ID, _RUN_ID).items():
            state = str(task["state"])
            if state in _TOLD_STATES and state != self._task_states.get(name):
                self._task_states[name] = state
                self._say(f"Airflow task {name}: {state.replace('_', ' ')}")

    def _trainer_lines(self) -> Iterator[str]:
        """Yield what the trainers printed; of their progress only the newest now and then."""
        progress = None
        outputs = sorted((self._home / "ett" / "local").glob("*/logs/trainer-0"))
        for line in self._output_follower.new(outputs):
            if line.startswith("cursor "):
                progress = line
            elif line.startswith(_TOLD_OUTPUT):
                yield line
        if progress and time.monotonic() - self._told_progress >= _PROGRESS_S:
            self._told_progress = time.monotonic()
            yield progress

    def _cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "airflow_ett.cli", *arguments],
            env=self.stack.env,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise DemoError(f"airflow-ett {' '.join(arguments)} failed: {done.stderr.strip()}")
        return done

    def _say(self, line: str) -> None:
        self._print(f"[{time.monotonic() - self._began:5.1f} s] {line}")
