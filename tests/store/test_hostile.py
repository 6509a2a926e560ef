"""Anybody may write a log: odd events harm no other job, and their own as little as can be."""

import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from airflow_ett.errors import EventLogError
from airflow_ett.events import Event, JobKey, Kind, RunDir
from airflow_ett.store import (
    IngestReport,
    Store,
    ingest_root,
    ingest_run_dir,
    open_store,
    queries,
    tables,
    upgrade,
)
from airflow_ett.store.folds import JobFold
from airflow_ett.store.storable import row_of

WriteJob = Callable[..., RunDir]
S = 1_000_000_000
BEGIN = 1_790_000_000 * S
FIELDS = (
    *("key", "scheduler", "accelerators", "inherit", "submission", "app", "handle", "layer", "try"),
    *("resume_cursor", "state", "allocated_ns", "started_ns", "ended_ns", "cause", "evidence"),
    *("version", "uri", "begin", "end", "role", "pid", "host", "node", "world_size", "cursor_hwm"),
    *("checkpoint", "cursor", "hwm", "phase", "lane", "span", "id", "from", "to", "cursor_from"),
    *("cursor_to", "steps", "step_ns", "wait_ns", "other_ns", "blocking_ns", "upload_ns", "bytes"),
    *("anchor", "duration_ns", "hits", "misses", "reason", "signal", "exit_code", "outcome"),
)
_LONG = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=9_000))
VALUES = {
    "null": None,
    "true": True,
    "negative": -1,
    "zero": 0,
    "fraction": 1.5,
    "huge-fraction": 1e308,
    "63-bits": 2**63 - 1,
    "64-bits": 2**63,
    "1300-bits": 10**400,
    "text": "x",
    "empty": "",
    "nul": "a\0b",
    "surrogate": "\ud800",
    "long": _LONG,
    "list": [[1], None],
    "object": {"dag_id": 1, "hwm": {"a": [None]}, "text": "\0"},
    "names": dict.fromkeys(("deployment", "dag_id", "run_id", "task_id"), _LONG + "\0"),
}


def _append(run: RunDir, lines: list[str]) -> None:
    run.nodes.mkdir(parents=True, exist_ok=True)
    with (run.nodes / "hostile.jsonl").open("a", encoding="ascii") as log:
        log.writelines(f"{line}\n" for line in lines)


def _line(job: str, seq: int, kind: str, data: Any, **fields: Any) -> str:
    event = {"v": 1, "job": job, "writer": "hostile", "seq": seq, "time": BEGIN + seq * S}
    return json.dumps({**event, "event": kind, "data": data, **fields})


def _job_of(run: RunDir) -> str:
    return str(json.loads(next(iter(run.logs())).read_text().splitlines()[0])["job"])


def _events(store: Store, job: str) -> int:
    query = select(func.count()).select_from(tables.event).where(tables.event.c.job == job)
    with store.read() as connection:
        return connection.scalar(query) or 0


def test_a_field_may_hold_anything(store: Store, tmp_path: Path, write_job: WriteJob) -> None:
    jobs = {}
    for name, value in VALUES.items():
        run = write_job(tmp_path, run_id=name)
        jobs[_job_of(run)] = name
        data = dict.fromkeys(FIELDS, value)
        attempt = [2, 0, 0]
        lines = [_line(_job_of(run), n, k, data, attempt=attempt) for n, k in enumerate(Kind)]
        lines += [_line(_job_of(run), 100 + n, k, {}, rank=0) for n, k in enumerate(Kind)]
        _append(run, lines)
    report = ingest_root(store, tmp_path)
    assert report.problems == ()
    assert {jobs[job] for job in report.jobs} == set(VALUES)
    assert {jobs[row.job] for row in queries.jobs(store)} == set(VALUES)
    assert all(_events(store, job) == 19 + 2 * len(Kind) for job in jobs)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_job_may_consist_of_one_odd_event_of_any_kind(
    value: Any, tmp_path: Path, sqlite: Store
) -> None:
    for kind in Kind:
        key = JobKey("default", "d", kind, "t")
        run = RunDir(tmp_path / key.path)
        _append(run, [_line(key.id, 0, kind, dict.fromkeys(FIELDS, value))])
        assert ingest_run_dir(sqlite, run.path).jobs == (key.id,)


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Store]:
    """An open store in an SQLite file."""
    upgrade(f"sqlite:///{tmp_path}/hostile.db")
    store = open_store(f"sqlite:///{tmp_path}/hostile.db")
    yield store
    store.close()


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=[]), max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
_EVENTS = st.lists(
    st.tuples(
        st.sampled_from(Kind),
        st.dictionaries(st.sampled_from(FIELDS), _JSON, max_size=6),
        st.none() | st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 2**63 - 1)),
        st.none() | st.integers(0, 2**63 - 1),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(_EVENTS)
def test_no_event_stops_an_ingest(
    shared_sqlite: Store,
    events: list[tuple[str, dict[str, Any], tuple[int, int, int] | None, int | None]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        key = JobKey("default", "d", folder, "t")
        run = RunDir(Path(folder) / key.path)
        lines = [
            _line(key.id, n, kind, data, attempt=attempt, rank=rank)
            for n, (kind, data, attempt, rank) in enumerate(events)
        ]
        _append(run, lines)
        report = ingest_run_dir(shared_sqlite, run.path)
    assert report == IngestReport(new_events=len(events), jobs=(key.id,))


@pytest.fixture(scope="module")
def shared_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """An open store in an SQLite file that several tests or examples use."""
    url = f"sqlite:///{tmp_path_factory.mktemp('store')}/ett.db"
    upgrade(url)
    store = open_store(url)
    yield store
    store.close()


def test_a_submission_without_a_number_is_left_out_and_odd_texts_are_cleaned(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    run = write_job(tmp_path)
    job = _job_of(run)
    odd: dict[str, Any] = {"submission": 3, "handle": "x\0y\ud800", "app": ["a"], "try": 2**63}
    _append(run, [_line(job, 0, "submitted", {"app": "a"}), _line(job, 1, "submitted", odd)])
    _append(run, [_line(job, 2, "submitted", {**odd, "submission": "3"})])
    ingest_run_dir(store, run.path)
    columns = tables.submission.c
    query = select(columns.submission, columns.handle, columns.app, columns.try_number)
    with store.read() as connection:
        rows = connection.execute(query.order_by(columns.submission)).all()
    assert [row.submission for row in rows] == [1, 2, 3]
    assert tuple(rows[2]) == (3, "xy", None, None)


def test_phases_whose_names_are_stored_alike_are_added_up(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    run = write_job(tmp_path)
    job, at = _job_of(run), BEGIN + 10 * S
    for number, name in enumerate(("mine", "mi\0ne")):
        for edge in (0, 1):
            kind, time = ("phase_begin", "phase_end")[edge], at - (5 - 2 * number - edge) * S
            data, where = {"phase": name, "span": str(number)}, {"attempt": [1, 0, 0], "rank": 0}
            _append(run, [_line(job, 2 * number + edge, kind, data, time=time, **where)])
    ingest_run_dir(store, run.path)
    (row,) = queries.jobs(store)
    found = [timing for timing in queries.phases(store, job) if timing.phase.startswith("mi")]
    assert [timing.phase for timing in found] == ["mine"]
    assert sum(t.ns for t in queries.phases(store, job)) == row.wall_ns
    assert found[0].ns == sum(row.result["phases_ns"].get(n, 0) for n in ("mine", "mi\0ne")) > S


def test_an_event_that_no_database_takes_is_told_and_skipped(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    run = write_job(tmp_path)
    job = _job_of(run)
    infinite = _line(job, 0, "note", {"x": "@"}).replace('"@"', "1e999")
    deep = _line(job, 1, "note", {"x": "@"}).replace('"@"', "[" * 100 + "]" * 100)
    wordy = _line(job, 2, "note", {}, writer=_LONG)
    foreign = _line(_LONG, 3, "note", {})
    _append(run, [infinite, deep, wordy, foreign, _line(job, 4, "note", {})])
    report = ingest_root(store, tmp_path)
    assert (report.new_events, report.bad_lines, report.jobs) == (20, 4, (job,))
    told = "\n".join(report.problems)
    assert "not a line of JSON: 1e999" in told
    assert "hostile event 1: it is nested more than" in told
    assert all("nodes/hostile.jsonl" in problem for problem in report.problems)
    assert max(map(len, report.problems)) < 400
    assert ingest_root(store, tmp_path) == IngestReport()


def test_a_log_whose_name_is_no_text_is_told_and_skipped(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    run = write_job(tmp_path)
    Path(os.fsdecode(os.fsencode(run.nodes) + b"/\xff.jsonl")).write_text("{}\n")
    report = ingest_root(store, tmp_path)
    assert (report.new_events, len(report.jobs), len(report.problems)) == (19, 1, 1)
    assert r"'\udcff.jsonl' is no text" in report.problems[0]


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The jobs that the metric cannot measure."""
    poisoned = set[str]()

    measure = JobFold.measure

    def fragile(fold: JobFold, open_interval: Event | None, **clock: Any) -> Any:
        if fold.job in poisoned:
            raise KeyError("submission")
        return measure(fold, open_interval, **clock)

    monkeypatch.setattr(JobFold, "measure", fragile)
    return poisoned


def test_a_job_that_cannot_be_measured_stops_no_other(
    store: Store, tmp_path: Path, write_job: WriteJob, poison: set[str]
) -> None:
    runs = [write_job(tmp_path, run_id=f"run-{n}") for n in range(4)]
    bad = _job_of(runs[1])
    poison.add(bad)
    for again in (False, True):
        report = ingest_root(store, tmp_path)
        assert [p for p in report.problems if bad in p and str(runs[1].path) in p] == list(
            report.problems
        )
        assert "KeyError('submission')" in report.problems[0]
        assert report.new_events == (0 if again else 4 * 19)
        assert {row.run_id for row in queries.jobs(store)} == {"run-0", "run-2", "run-3"}
        assert _events(store, bad) == 19
    with pytest.raises(EventLogError, match=bad):
        ingest_run_dir(store, runs[1].path)
    poison.clear()
    assert ingest_root(store, tmp_path) == IngestReport(jobs=(bad,))
    assert len(queries.jobs(store)) == 4


def test_a_frozen_job_that_cannot_be_measured_again_is_tried_again(
    store: Store, tmp_path: Path, write_job: WriteJob, poison: set[str]
) -> None:
    run = write_job(tmp_path)
    job = _job_of(run)
    ingest_root(store, tmp_path)
    before = queries.jobs(store)
    poison.add(job)
    state = {"submission": 2, "state": "SUCCEEDED", "ended_ns": BEGIN + 200 * S}
    _append(run, [_line(job, 0, "scheduler_state", state)])
    assert ingest_root(store, tmp_path).new_events == 1
    assert queries.jobs(store) == before
    poison.clear()
    ingest_root(store, tmp_path)
    assert queries.jobs(store)[0].revision == 2
    assert ingest_root(store, tmp_path) == IngestReport()


def test_a_directory_that_cannot_be_looked_into_stops_no_other(
    store: Store, tmp_path: Path, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = write_job(tmp_path, run_id="closed")
    write_job(tmp_path, run_id="open")
    look = RunDir.logs

    def logs(run: RunDir) -> Iterator[Path]:
        if run.path == closed.path:
            raise PermissionError(13, "Permission denied", str(run.nodes))
        return look(run)

    monkeypatch.setattr(RunDir, "logs", logs)
    report = ingest_root(store, tmp_path)
    assert (len(report.jobs), len(report.problems)) == (1, 1)
    assert "Permission denied" in report.problems[0]


def test_a_column_gets_what_it_takes() -> None:
    values = {"submission": 2**70, "phase": "p" * 300, "component": None, "ns": "1", "other": 1}
    row = row_of(tables.phase, values)
    assert row == {"submission": 2**63 - 1, "phase": "p" * 250, "component": "", "ns": 0}
    row = row_of(tables.job, {"frozen": 1, "ett_pct": float("inf"), "tts_ns": 1.5, "nof": True})
    assert row == {"frozen": False, "ett_pct": None, "tts_ns": None, "nof": 1}
