"""An ended job's numbers stay, unless late evidence or another mapping gives them a revision."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import func, select, text

from airflow_ett.events import LogWriter, RunDir
from airflow_ett.metric import COMPONENTS, Components
from airflow_ett.store import (
    IngestReport,
    Store,
    ingest_root,
    ingest_run_dir,
    open_store,
    queries,
    tables,
)

WriteJob = Callable[..., RunDir]
S = 1_000_000_000
BEGIN = 1_790_000_000 * S
SCHEDULER = {"submission": 2, "state": "SUCCEEDED"}
PUBLISHED = {"version": "7", "uri": "file:///m/7", "begin": 1, "end": 2}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every ingest see a later instant, in whole seconds from 1000 on."""
    times = itertools.count(BEGIN + 1000 * S, S)
    monkeypatch.setattr("airflow_ett.store.batch.time", SimpleNamespace(time_ns=times.__next__))


@pytest.fixture
def run(tmp_path: Path, write_job: WriteJob) -> RunDir:
    """The run directory of a job that has ended."""
    return write_job(tmp_path)


@pytest.fixture
def tell(run: RunDir) -> Iterator[Callable[..., None]]:
    """Append an event to the job's log: ``tell(job, kind, data, second)``."""
    logs: list[LogWriter] = []

    def append(job: str, kind: str, data: dict[str, Any], second: int = 100, **more: Any) -> None:
        log = LogWriter(run.launcher / "late.jsonl", job=job, writer="late")
        logs.append(log)
        log.append(kind, data, time_ns=BEGIN + second * S, **more)

    yield append
    for log in logs:
        log.close()


def _only(store: Store) -> queries.JobRow:
    (row,) = queries.jobs(store)
    return row


def test_late_evidence_is_a_numbered_and_dated_revision(
    store: Store, run: RunDir, tell: Callable[..., None]
) -> None:
    ingest_run_dir(store, run.path)
    first = _only(store)
    assert (first.frozen, first.revision, first.updated_ns) == (True, 1, BEGIN + 1000 * S)
    tell(first.job, "scheduler_state", SCHEDULER | {"ended_ns": BEGIN + 130 * S})
    ingest_run_dir(store, run.path)
    second = _only(store)
    assert (first.wall_ns, second.wall_ns) == (90 * S, 130 * S)
    assert (second.revision, second.updated_ns) == (2, BEGIN + 1001 * S)
    told = (second.result["revision"], second.result["revised_ns"])
    assert told == (second.revision, second.updated_ns)


def test_what_a_live_job_becomes_is_no_revision(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    run = write_job(tmp_path, run_id="live", ended=False)
    ingest_run_dir(store, run.path)
    assert not _only(store).frozen
    write_job(tmp_path, run_id="live")
    ingest_run_dir(store, run.path)
    assert (_only(store).frozen, _only(store).revision) == (True, 1)


def test_a_published_version_is_kept_and_no_revision(
    store: Store, run: RunDir, tell: Callable[..., None]
) -> None:
    ingest_run_dir(store, run.path)
    first = _only(store)
    tell(first.job, "published", PUBLISHED)
    ingest_run_dir(store, run.path)
    second = _only(store)
    (published,) = second.result["published"]
    assert PUBLISHED.items() <= published.items()
    assert (second.revision, second.updated_ns) == (1, first.updated_ns)
    with store.read() as connection:
        assert connection.scalar(select(func.count()).select_from(tables.publish)) == 1


def test_a_copy_of_what_is_known_is_no_revision(store: Store, run: RunDir) -> None:
    ingest_run_dir(store, run.path)
    first = _only(store)
    log = next(iter(run.logs()))
    (run.nodes / "copy.jsonl").write_bytes(log.read_bytes())
    ingest_run_dir(store, run.path)
    assert _only(store) == first


def _with(url: str, **changes: dict[str, str]) -> Store:
    return open_store(url, components=COMPONENTS.changed(**changes))


def _by_component(store: Store, job: str) -> dict[str, int]:
    total: Counter[str] = Counter()
    for row in queries.phases(store, job):
        total[row.component] += row.ns
    return dict(total)


def _check_sums(store: Store, components: Components) -> None:
    row = _only(store)
    sums = dict.fromkeys(components, 0) | _by_component(store, row.job)
    assert row.result["components_ns"] == sums
    assert sum(sums.values()) == row.wall_ns


def test_another_mapping_measures_ended_jobs_again(
    store: Store, url: str, tmp_path: Path, run: RunDir
) -> None:
    ingest_root(store, tmp_path)
    first = _only(store)
    assert ingest_root(store, tmp_path) == IngestReport()
    other = _with(url, phases={"replay": "shutdown", "unused": "trainer_init"})
    assert ingest_root(other, tmp_path) == IngestReport(jobs=(first.job,))
    second = _only(other)
    assert second.result["phases_ns"] == first.result["phases_ns"]
    replay = first.result["phases_ns"]["replay"]
    assert replay > 0
    for name, change in (("shutdown", replay), ("wasted", -replay)):
        assert second.result["components_ns"][name] - first.result["components_ns"][name] == change
    _check_sums(other, other.components)
    assert (second.revision, second.updated_ns) == (2, BEGIN + 1001 * S)
    assert ingest_root(other, tmp_path) == IngestReport()
    other.close()


def test_a_mapping_that_changes_no_number_is_no_revision(
    store: Store, url: str, tmp_path: Path, run: RunDir
) -> None:
    ingest_root(store, tmp_path)
    first = _only(store)
    other = _with(url, phases={"unused": "trainer_init"})
    assert ingest_root(other, tmp_path).jobs == (first.job,)
    assert _only(other) == first
    assert ingest_root(other, tmp_path) == IngestReport()
    other.close()


def test_another_owner_is_only_shown(store: Store, url: str, tmp_path: Path, run: RunDir) -> None:
    ingest_root(store, tmp_path)
    other = _with(url, owners={"wasted": "storage"})
    assert ingest_root(other, tmp_path) == IngestReport()
    other.close()


def test_a_phase_of_the_trainers_own_counts_by_where_it_lies(
    store: Store, run: RunDir, tell: Callable[..., None]
) -> None:
    ingest_run_dir(store, run.path)
    job = _only(store).job
    attempt = {"attempt": _attempts(store, job)[0], "rank": 0}
    spans = (("mine", 8, 9), ("yours", 22, 23), ("checkpoint_restore.read", 9, 10))
    for number, (phase, begin, end) in enumerate(spans):
        tell(job, "phase_begin", {"span": str(number), "phase": phase}, begin, **attempt)
        tell(job, "phase_end", {"span": str(number)}, end, **attempt)
    ingest_run_dir(store, run.path)
    found = {row.phase: row.component for row in queries.phases(store, job)}
    assert found["mine"] == found["checkpoint_restore.read"] == "trainer_init"
    assert found["yours"] == "wasted"
    _check_sums(store, COMPONENTS)


def _attempts(store: Store, job: str) -> list[Any]:
    return sorted({row.attempt for row in queries.phases(store, job)})


def test_a_database_of_before_is_measured_again(store: Store, tmp_path: Path, run: RunDir) -> None:
    ingest_root(store, tmp_path)
    first = _only(store)
    store.write(lambda connection: connection.execute(text("UPDATE ett_job SET mapping = NULL")))
    assert ingest_root(store, tmp_path).jobs == (first.job,)
    assert _only(store) == first
    assert ingest_root(store, tmp_path) == IngestReport()
