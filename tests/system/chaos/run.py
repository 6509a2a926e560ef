"""A whole run: a real Airflow, trainings side by side, injections, checks, the tally."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from airflow_ett.demo.processes import of_stack
from airflow_ett.demo.stack import AirflowStack
from airflow_ett.errors import DemoError
from tests.system.chaos.driver import Drive, Driver
from tests.system.chaos.invariants import CHECKS, orphans, tasks
from tests.system.chaos.plan import LOCAL, SHARED, SLURM, Course
from tests.system.chaos.report import ORPHANS, by_target, story, tally
from tests.system.chaos.services import Services
from tests.system.chaos.sites import Machine, Site
from tests.system.chaos.slurm import SlurmSite
from tests.system.chaos.view import DEPLOYMENT, View

DAGS = Path(__file__).parent / "dags"
SIDE_BY_SIDE = 6
_FIXED_S, _PER_INJECTION_S = 150.0, 15.0
SCHEDULER_VARIABLE = "ETT_CHAOS_SCHEDULER"
"""Tells the DAGs where their trainings run."""

_SETTLE_S, _REAP_S = 25.0, 90.0

_FORGET_S = 180.0
"""So long Slurm may take to find out that what a node ran died with it: it knows of no process."""

LOWERED = {
    # A task whose process was killed is found within seconds instead of five minutes.
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "12",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "2",
    # So are the tasks of a scheduler, and the triggers of a triggerer, that was killed.
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "2",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "12",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "3",
    "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "12",
    "AIRFLOW__CORE__PARALLELISM": str(SIDE_BY_SIDE + 2),
}


class Run:
    """One chaos run in ``home``; ``say`` prints a line of progress."""

    def __init__(
        self,
        home: Path,
        *,
        courses: Sequence[Course],
        seed: int,
        say: Callable[[str], None],
        scheduler: str = LOCAL,
        by_ssh: bool = False,
    ) -> None:
        self.seed = seed
        self._courses = courses
        self._say = say
        self._site: Site = SlurmSite(seed, by_ssh=by_ssh) if scheduler == SLURM else Machine()
        self._found: dict[str, list[str]] = defaultdict(list)
        self._begun = time.monotonic()
        count = sum(len(course.injections) for course in courses)
        self._deadline = self._begun + _FIXED_S + _PER_INJECTION_S * count
        told = {SCHEDULER_VARIABLE: scheduler, "AIRFLOW__ETT__DEPLOYMENT": DEPLOYMENT}
        self._stack = AirflowStack(home, dags=DAGS, env={**LOWERED, **told})
        self._services = Services(self._stack, seed)
        self._reaped: list[str] = []

    def __call__(self) -> tuple[bool, str]:
        """Do it all; return whether everything held, and the tally."""
        with self._site:
            self._stack.env.update(self._site.env)
            drives = self._with_airflow()
        self._say(f"hit: {by_target(drives)}; crashed: {self._services.crashes}")
        line = tally(drives, self._found, len(self._reaped), self._wall_s(), self.seed)
        return not any(self._found.values()), line

    def _with_airflow(self) -> list[Drive]:
        self._prepare_database()
        self._stack.start()
        self._say(f"Airflow is up after {self._wall_s():.0f} s")
        try:
            for kind in {course.kind for course in self._courses}:
                self._stack.api.wait_for_dag(f"chaos_{kind}")
            with self._services, ThreadPoolExecutor(SIDE_BY_SIDE) as lanes:
                drives = list(lanes.map(self._drive, self._courses))
                self._settle(drives)
            self._check(drives)
        finally:
            self._stack.stop()
        return drives

    def _prepare_database(self) -> None:
        """Have Airflow's readers not lock its writers out, which ends a scheduler on SQLite."""
        self._stack.home.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(self._stack.home / "airflow.db")) as database:
            database.execute("PRAGMA journal_mode=WAL")

    def _drive(self, course: Course) -> Drive:
        view = View(course, self._stack.home)
        api = self._stack.login("admin")
        done = Driver(view, api, self._services, self._site, self._expired)()
        self._say(
            f"{self._wall_s():5.0f} s  {view}: {len(done.blows)} injections, "
            f"{len(view.starts())} trainers, {done.state or done.problem}"
        )
        return done

    def _settle(self, drives: list[Drive]) -> None:
        """Wait until all jobs are over; what only the reaper ends, it ends."""
        self._until(lambda: all(done.view.over() for done in drives), _SETTLE_S)
        waiting = [done.view for done in drives if not done.view.over()]
        if waiting:
            self._reap(waiting)
        self._until(lambda: not self._living(drives), _SETTLE_S)
        self._found[ORPHANS] += self._living(drives)
        self._until(lambda: not self._site.jobs(), _FORGET_S)

    def _reap(self, waiting: list[View]) -> None:
        for view in waiting:
            self._say(f"not over, left to the reaper: {view}")
        try:
            run_id = self._stack.api.trigger("chaos_rollup", "reap")
            self._stack.api.wait_for_run("chaos_rollup", run_id, timeout_s=_REAP_S)
            self._reaped = self._stack.api.xcom("chaos_rollup", run_id, "reap")
        except DemoError as error:
            self._found["wrong ends"].append(f"the reaper: {error}")
        for line in self._reaped:
            self._say(f"reaped: {line}")

    def _check(self, drives: list[Drive]) -> None:
        self._found[ORPHANS] += self._site.jobs()
        for done in drives:
            done.beside = [
                blow
                for other in drives
                for blow in other.blows
                if other is not done and blow.injection.target in SHARED
            ]
            wrong = [(name, text) for name, check in CHECKS.items() for text in check(done)]
            for name, text in wrong:
                self._found[name].append(f"{done.view}: {text}")
            for text in done.missed:
                self._say(text)
            if wrong:
                self._say("\n".join([f"== {done.view}", *(f"!! {n}: {t}" for n, t in wrong)]))
                self._say("\n".join(story(done)))
            (self._stack.home / f"{done.view.run_id}.txt").write_text("\n".join(story(done)))
        for text in self._found[ORPHANS]:
            self._say(f"!! {text}")

    def _living(self, drives: list[Drive]) -> list[str]:
        living = of_stack(self._stack.home) | self._site.processes()
        found = [text for done in drives for text in [*orphans(done, living), *tasks(done)]]
        return sorted(set(found))

    def _expired(self) -> bool:
        return time.monotonic() > self._deadline

    def _wall_s(self) -> float:
        return time.monotonic() - self._begun

    @staticmethod
    def _until(check: Callable[[], bool], seconds: float) -> None:
        limit = time.monotonic() + seconds
        while not check() and time.monotonic() < limit:
            time.sleep(0.5)


def speaker(begin: str = "") -> Callable[[str], None]:
    """Return a function that prints lines of several threads one after the other."""
    lock = threading.Lock()

    def say(line: str) -> None:
        with lock:
            print(begin + line, flush=True)

    return say
