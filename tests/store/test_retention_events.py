"""Raw events of jobs that ended long ago: pruned, and never mistaken for a job's beginning."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, func, insert, select

from airflow_ett.events import JobKey, LogWriter, RunDir
from airflow_ett.metric import COMPONENTS
from airflow_ett.store import Store, ingest_run_dir, open_store, tables
from airflow_ett.store.append import Appender
from airflow_ett.store.export import export
from airflow_ett.store.project import load_events
from airflow_ett.store.retention import prune_events, prune_files, prune_quarantine

WriteJob = Callable[..., RunDir]
on_sqlite = pytest.mark.parametrize("empty_url", ["sqlite"], indirect=True)
S = 1_000_000_000
END = 1_790_000_100 * S
LATER = END + S


def rows(store: Store, *names: str) -> dict[str, list[dict[str, Any]]]:
    """Return the tables' rows in order; ``ett_job`` without the bookkeeping of retention."""
    aside = ("exported_ns", "exported_events", "pruned_events")
    found = {}
    with store.read() as connection:
        for table in tables.metadata.sorted_tables:
            if not names or table.name in names:
                got = connection.execute(select(table)).mappings()
                clean = [{n: v for n, v in row.items() if n not in aside} for row in got]
                found[table.name] = sorted(clean, key=lambda row: json.dumps(row, default=str))
    return found


def derived(store: Store) -> dict[str, list[dict[str, Any]]]:
    """Return what the metric made."""
    return rows(store, "ett_job", *(table.name for table in tables.PROJECTED))


def events(store: Store) -> int:
    """Return how many raw events are stored."""
    with store.read() as connection:
        return int(connection.scalar(select(func.count()).select_from(tables.event)) or 0)


def tell_late(run: RunDir, job: str, *, end_s: int = 95) -> None:
    """Append late evidence that would change an ended job's numbers."""
    state = {"submission": 2, "state": "SUCCEEDED", "ended_ns": END - (100 - end_s) * S}
    late = LogWriter(run.launcher / "late.jsonl", job=job, writer="late")
    late.append("scheduler_state", state, time_ns=END)
    late.close()


def job_of(store: Store) -> str:
    """Return the only job's id."""
    with store.read() as connection:
        return str(connection.scalar(select(tables.job.c.job)))


def test_only_an_old_ended_job_loses_its_events(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    ingest_run_dir(store, write_job(tmp_path, dag_id="old").path)
    ingest_run_dir(store, write_job(tmp_path, dag_id="running", ended=False).path)
    recent = write_job(tmp_path, dag_id="recent", begin_ns=END)
    ingest_run_dir(store, recent.path)
    before, all_events = derived(store), events(store)

    found = prune_events(store, LATER, dry_run=True)
    assert (found.count, found.oldest_ns, found.kept) == (19, END - 100 * S, ())
    assert found.bytes > 19 * 100
    assert events(store) == all_events

    assert prune_events(store, LATER, dry_run=False) == found
    assert events(store) == all_events - 19
    assert derived(store) == before
    assert prune_events(store, LATER, dry_run=False).count == 0


@on_sqlite
def test_the_newest_event_counts_not_the_jobs_end(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    run = write_job(tmp_path)
    ingest_run_dir(store, run.path)
    published = LogWriter(run.launcher / "p.jsonl", job=job_of(store), writer="publish-1")
    published.append("published", {"version": "1", "uri": "x"}, time_ns=LATER + 1)
    published.close()
    ingest_run_dir(store, run.path)
    assert prune_events(store, LATER, dry_run=False).count == 0


def test_a_pruned_job_is_neither_new_nor_measured_from_a_late_line(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    run = write_job(tmp_path)
    ingest_run_dir(store, run.path)
    before, job = derived(store), job_of(store)
    prune_events(store, LATER, dry_run=False)
    for log in list(run.nodes.iterdir()):
        log.unlink()
    assert ingest_run_dir(store, run.path).problems == ()
    tell_late(run, job)
    report = ingest_run_dir(store, run.path)
    assert "were pruned, so its numbers stay" in report.problems[0]
    assert derived(store) == before
    assert ingest_run_dir(store, run.path).problems == ()
    # What came late goes, too, and leaves the job as incomplete as it was.
    assert prune_events(store, LATER, dry_run=False).count > 0
    tell_late(run, job, end_s=96)
    ingest_run_dir(store, run.path)
    assert derived(store) == before


@on_sqlite
def test_with_its_whole_run_directory_a_late_line_makes_a_revision(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    run = write_job(tmp_path)
    ingest_run_dir(store, run.path)
    prune_events(store, LATER, dry_run=False)
    tell_late(run, job_of(store))
    assert ingest_run_dir(store, run.path).problems == ()
    (job,) = derived(store)["ett_job"]
    assert (job["revision"], job["wall_ns"]) == (2, 95 * S)


@on_sqlite
def test_other_components_do_not_measure_a_pruned_job_again(
    store: Store, url: str, tmp_path: Path, write_job: WriteJob
) -> None:
    run = write_job(tmp_path)
    ingest_run_dir(store, run.path)
    before = derived(store)
    prune_events(store, LATER, dry_run=False)
    other = open_store(url, components=COMPONENTS.changed(phases={"replay": "shutdown"}))
    assert ingest_run_dir(other, run.path).problems == ()
    assert derived(store) == before
    other.close()


def _held(store: Store, job: str) -> None:
    """Make the job one whose log the API holds."""
    file = {"job": job, "name": "launcher/claims/00000001.json", "content": b"{}", "time_ns": 1}
    store.write(lambda connection: connection.execute(insert(tables.file), [file]))


def test_where_the_api_holds_the_log_events_go_after_their_export(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    run = write_job(tmp_path / "runs")
    ingest_run_dir(store, run.path)
    job = job_of(store)
    _held(store, job)
    kept = prune_events(store, LATER, dry_run=False)
    assert kept.count == 0
    assert "airflow-ett db export" in kept.kept[0]

    assert export(store, tmp_path / "out").jobs == 1
    with store.read() as connection:
        late = next(e for e in load_events(connection, job) if e.kind == "job_ended")
    appender = Appender(store)
    extra = late.__class__(job, "trainer-2.0.0-r0-p102", 99, END, "heartbeat", late.attempt)
    assert appender.append(job, [extra]).new == 1
    # The export is stale: one event is not in it.
    assert prune_events(store, LATER, dry_run=False).kept == kept.kept

    export(store, tmp_path / "out")
    before = derived(store)
    pruned = prune_events(store, LATER, dry_run=False)
    assert pruned.count > 0
    with store.read() as connection:
        left = {event.kind for event in load_events(connection, job)}
    # What launchers wrote says that the job is over.
    assert {"job_opened", "submitted", "job_ended"} <= left
    assert "interval" not in left
    again = extra.__class__(job, "trainer-2.0.0-r0-p102", 100, END, "heartbeat", late.attempt)
    assert appender.append(job, [again]).failure is None
    assert derived(store) == before
    assert export(store, tmp_path / "out").kept == 1


def test_files_of_trainers_that_the_api_holds(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    jobs = []
    for dag_id, ended in (("old", True), ("live", False)):
        run = write_job(tmp_path, dag_id=dag_id, ended=ended)
        ingest_run_dir(store, run.path)
        jobs.append(JobKey("default", dag_id, "run-1", "train").id)
    names = ("launcher/claims/00000001.json", "nodes/heartbeat-1.0-n0", "replies/x.json", "cursor")
    row = {"content": b"12345", "time_ns": 7}
    files = [{"job": job, "name": name, **row} for job in jobs for name in names]
    store.write(lambda connection: connection.execute(insert(tables.file), files))
    looked = prune_files(store, LATER, dry_run=True)
    assert (looked.count, looked.bytes, looked.oldest_ns) == (2, 10, 7)
    assert prune_files(store, END - S, dry_run=False).count == 0
    assert prune_files(store, LATER, dry_run=False) == looked
    left = {(row["job"], row["name"]) for row in rows(store, "ett_file")["ett_file"]}
    assert left == {(jobs[0], names[0]), (jobs[0], "cursor"), *((jobs[1], n) for n in names)}


def test_quarantined_lines_go_with_their_job(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    for dag_id, ended in (("old", True), ("live", False)):
        run = write_job(tmp_path, dag_id=dag_id, ended=ended)
        (run.nodes / "bad.jsonl").write_text("nonsense\n")
        ingest_run_dir(store, run.path)
    assert prune_quarantine(store, LATER, dry_run=True).count == 1
    assert prune_quarantine(store, LATER, dry_run=False).count == 1
    (left,) = rows(store, "ett_quarantine")["ett_quarantine"]
    assert left["path"].startswith("default-")
    assert "/live-" in left["path"]


def test_prunings_at_the_same_time_and_one_that_is_killed(
    store: Store, url: str, tmp_path: Path, write_job: WriteJob
) -> None:
    runs = [write_job(tmp_path, run_id=f"run-{n}") for n in range(6)]
    for run in runs:
        ingest_run_dir(store, run.path)
    before = derived(store)
    script = (
        "import sys; from airflow_ett.store import open_store;"
        "from airflow_ett.store.retention import prune_events; print('go', flush=True);"
        "prune_events(open_store(sys.argv[1]), int(sys.argv[2]), dry_run=False)"
    )
    command = [sys.executable, "-c", script, url, str(LATER)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        killed.stdout.readline()
        time.sleep(0.02)
        killed.kill()
    # Each job has all its events or none, and is marked in the same transaction.
    with store.read() as connection:
        for job in connection.execute(select(tables.job)):
            left = len(list(load_events(connection, job.job)))
            assert (left, job.pruned_events) in ((19, None), (0, 19))
    with ThreadPoolExecutor(2) as pool:
        stores = [open_store(url) for _ in range(2)]
        list(pool.map(lambda one: prune_events(one, LATER, dry_run=False), stores))
    assert events(store) == 0
    assert derived(store) == before
    for run in runs:
        ingest_run_dir(store, run.path)
    assert derived(store) == before
    for one in stores:
        one.close()


@on_sqlite
def test_a_killed_transaction_leaves_all(
    store: Store, tmp_path: Path, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest_run_dir(store, write_job(tmp_path).path)

    def fail(_values: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("airflow_ett.store.retention.update", fail)
    with pytest.raises(KeyboardInterrupt):
        prune_events(store, LATER, dry_run=False)
    assert events(store) == 19

    def pruned(connection: Connection) -> object:
        return connection.scalar(select(tables.job.c.pruned_events))

    with store.read() as connection:
        assert pruned(connection) is None
