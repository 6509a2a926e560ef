"""From job logs to rows: incremental, idempotent, and unharmed by what others write."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, event, func, select

from airflow_ett.errors import StoreMismatch
from airflow_ett.events import AttemptId, CursorFile, LogWriter, RunDir
from airflow_ett.store import (
    Store,
    ingest_root,
    ingest_run_dir,
    open_store,
    queries,
    tables,
    upgrade,
)
from airflow_ett.store.rebuild import rebuild

WriteJob = Callable[..., RunDir]
S = 1_000_000_000


def _rows(store: Store, *, but: tuple[str, ...] = ()) -> dict[str, Any]:
    """All rows of all tables, but for some columns."""
    content = {}
    for table in tables.metadata.sorted_tables:
        columns = [c for c in table.c if c.name not in but]
        with store.read() as connection:
            rows = connection.execute(select(*columns).order_by(*table.primary_key)).all()
        content[table.name] = [tuple(row) for row in rows]
    return content


def _count(store: Store, table: Table) -> int:
    with store.read() as connection:
        return connection.scalar(select(func.count()).select_from(table)) or 0


def _raw_log(run: RunDir) -> Path:
    run.nodes.mkdir(parents=True, exist_ok=True)
    return run.nodes / "other.jsonl"


def test_a_job_becomes_rows(store: Store, tmp_path: Path, write_job: WriteJob) -> None:
    run = write_job(tmp_path)
    report = ingest_run_dir(store, run.path)
    assert report.new_events == 19
    assert (report.bad_lines, report.problems) == (0, ())
    (job,) = queries.jobs(store)
    assert report.jobs == (job.job,)
    assert (job.dag_id, job.run_id, job.task_id, job.state, job.frozen, job.nof) == (
        *("ranker", "run-1", "train", "succeeded"),
        *(True, 1),
    )
    assert job.wall_ns == job.end_ns - job.begin_ns == sum(job.result["phases_ns"].values())
    assert job.result["phases_ns"]["replay"] > 0
    timings = queries.phases(store, job.job)
    assert sum(row.ns for row in timings) == job.wall_ns
    assert {row.attempt for row in timings} == {AttemptId(1), AttemptId(2)}
    assert {row.component for row in timings if row.phase == "train"} == {"effective"}
    assert [_count(store, t) for t in (tables.submission, tables.attempt)] == [2, 2]
    assert _count(store, tables.checkpoint) == 2


def test_an_attempts_row_says_how_it_ended_and_where_its_output_is(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    """Both are there as soon as they are in the log, and evidence as it is there."""
    run = write_job(tmp_path, ended=False)
    ingest_run_dir(store, run.path)
    (job,) = queries.jobs(store)
    state = {"submission": 2, "state": "RUNNING", "raw": "running", "log": "/apps/2/trainer-0"}
    evidence = {"text": "it crashed", "signal": 11, "lines": ["step 9"], "log": "/apps/2/trainer-1"}
    with closing(LogWriter(run.launcher / "e2.jsonl", job=job.job, writer="launcher-2")) as log:
        log.append("scheduler_state", state, time_ns=job.begin_ns, attempt=AttemptId(2))
        ingest_run_dir(store, run.path)
        row = tables.attempt.c
        query = select(row.log, row.evidence).order_by(row.submission)
        with store.read() as connection:
            first, second = connection.execute(query).all()
        assert (first.log, second.log) == (None, "/apps/2/trainer-0")
        assert first.evidence == {"text": "it raised", "exit_code": 1}
        ended = {"cause": "application", "evidence": evidence, "cursor": 800}
        log.append("attempt_ended", ended, attempt=AttemptId(2))
        ingest_run_dir(store, run.path)
    with store.read() as connection:
        assert connection.execute(query).all()[1] == ("/apps/2/trainer-0", evidence)


def test_ingesting_again_changes_nothing(store: Store, tmp_path: Path, write_job: WriteJob) -> None:
    run = write_job(tmp_path)
    ingest_run_dir(store, run.path)
    before = _rows(store)
    assert ingest_run_dir(store, run.path).new_events == 0
    for log in run.logs():
        with log.open("ab") as file:
            file.write(log.read_bytes())
    assert ingest_run_dir(store, run.path).new_events == 0
    assert _rows(store, but=("offset",)) == {
        name: [row[:-1] for row in rows] if name == "ett_source" else rows
        for name, rows in before.items()
    }


def test_any_order_of_arrival_gives_the_same_rows(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    run = write_job(tmp_path)
    logs = {log: log.read_bytes() for log in run.logs()}
    for log in logs:
        log.unlink()
    for part in range(1, 6):
        for log, content in logs.items():
            log.write_bytes(content[: len(content) * part // 5])
        ingest_run_dir(store, run.path)
    pieces = _rows(store, but=("revision", "updated_ns"))
    other = open_store(f"sqlite:///{tmp_path}/other.db")
    upgrade(f"sqlite:///{tmp_path}/other.db")
    ingest_run_dir(other, run.path)
    assert _rows(other, but=("revision", "updated_ns")) == pieces


def test_a_torn_last_line_waits(store: Store, tmp_path: Path, write_job: WriteJob) -> None:
    run = write_job(tmp_path)
    log = next(iter(run.logs()))
    content = log.read_bytes()
    log.write_bytes(content[:-20])
    torn = ingest_run_dir(store, run.path)
    assert (torn.new_events, torn.bad_lines) == (18, 0)
    assert not queries.jobs(store)[0].frozen
    log.write_bytes(content)
    assert ingest_run_dir(store, run.path).new_events == 1
    assert queries.jobs(store)[0].frozen


def test_corrupt_lines_are_quarantined_with_their_place(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    run = write_job(tmp_path)
    job = next(iter(run.logs())).read_bytes()[14:34].decode()
    good = f'{{"v":1,"job":"{job}","writer":"w","seq":0,"time":1,"event":"odd"}}\n'.encode()
    huge = good.replace(b'"seq":0', b'"seq":99999999999999999999')
    nul = good.replace(b'"odd"', b'"o\\u0000d"')
    nan = good.replace(b'"odd"', b'"odd","data":{"x":NaN}')
    deep = good.replace(b'"odd"', b'"odd","data":' + b"[" * 100_000)
    lines = [b"\xff\xfe not json\n", huge, nul, nan, deep, b"[1]\n", good]
    _raw_log(run).write_bytes(b"".join(lines))
    report = ingest_run_dir(store, run.path)
    assert (report.new_events, report.bad_lines) == (20, 6)
    with store.read() as connection:
        rows = connection.execute(select(tables.quarantine).order_by(tables.quarantine.c.offset))
        offsets = [row.offset for row in rows if row.path.endswith("/g1/nodes/other.jsonl")]
    assert offsets == [sum(map(len, lines[:i])) for i in range(6)]
    assert any(f"byte {offsets[1]}: seq is not a whole number" in p for p in report.problems)
    assert queries.jobs(store)[0].state == "succeeded"


def test_odd_text_within_data_is_kept(store: Store, tmp_path: Path, write_job: WriteJob) -> None:
    run = write_job(tmp_path)
    ingest_run_dir(store, run.path)
    job = queries.jobs(store)[0].job
    line = (
        f'{{"v":1,"job":"{job}","writer":"w","seq":0,"time":1,"event":"note","new":"field",'
        f'"data":{{"text":"a\\u0000b \\ud800 \'; DROP TABLE ett_job; --"}}}}\n'
    )
    _raw_log(run).write_text(line)
    assert ingest_run_dir(store, run.path).new_events == 1
    with store.read() as connection:
        row = connection.execute(select(tables.event).where(tables.event.c.kind == "note")).one()
    assert row.data == {"text": "a\0b \ud800 '; DROP TABLE ett_job; --"}
    assert row.extra == {"new": "field"}


def test_another_jobs_events_are_not_taken(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    victim, thief = write_job(tmp_path, run_id="victim"), write_job(tmp_path, run_id="thief")
    ingest_run_dir(store, victim.path)
    before = queries.jobs(store, run_id="victim")
    log = LogWriter(_raw_log(thief), job=before[0].job, writer="thief")
    log.append("job_ended", {"state": "failed", "cause": "unknown"}, time_ns=1)
    log.close()
    report = ingest_run_dir(store, thief.path)
    assert "1 events of other jobs" in report.problems[0]
    ingest_run_dir(store, victim.path)
    assert queries.jobs(store, run_id="victim") == before


def test_a_replaced_log_is_read_from_its_begin(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    run = write_job(tmp_path)
    log = LogWriter(_raw_log(run), job="x" * 20, writer="w")
    log.close()
    ingest_run_dir(store, run.path)
    job = queries.jobs(store)[0].job
    long = LogWriter(run.nodes / "long.jsonl", job=job, writer="long")
    for _ in range(5):
        long.append("note")
    ingest_run_dir(store, run.path)
    (run.nodes / "long.jsonl").unlink()
    short = LogWriter(run.nodes / "long.jsonl", job=job, writer="short")
    short.append("note")
    assert ingest_run_dir(store, run.path).new_events == 1


def test_the_open_interval_counts_and_is_not_stored(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    run = write_job(tmp_path, ended=False)
    begin = 1_790_000_090 * S
    cursor = CursorFile(run.cursor)
    fields = (2, 0, 0, 0, 102, 7, 2500, 2500, begin, begin + 5 * S, 2000, 5, 5 * S, 0, 0)
    cursor.write(*fields, 0)
    ingest_run_dir(store, run.path)
    (job,) = queries.jobs(store)
    events = _count(store, tables.event)
    cursor.write(*fields, 1)
    ingest_run_dir(store, run.path)
    assert job.effective_ns - queries.jobs(store)[0].effective_ns == 5 * S
    assert _count(store, tables.event) == events
    cursor.close()


def test_a_live_job_lasts_until_its_heartbeat_went_stale(
    store: Store, tmp_path: Path, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_job(tmp_path, ended=False)
    begin = 1_790_000_000 * S
    beat = run.heartbeat(AttemptId(2), 0)
    beat.touch()

    def wall_s(now_s: int, beat_s: int) -> int:
        os.utime(beat, ns=(begin + beat_s * S,) * 2)
        monkeypatch.setattr("airflow_ett.store.batch.time.time_ns", lambda: begin + now_s * S)
        ingest_run_dir(store, run.path)
        return queries.jobs(store)[0].wall_ns // S

    assert wall_s(120, 118) == 120
    assert wall_s(1000, 121) == 121
    assert wall_s(2000, 121) == 121


def test_a_root_is_searched_for_what_is_unread(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    root = tmp_path / "runs"
    for number in range(3):
        write_job(root, run_id=f"run-{number}")
    write_job(root, deployment="staging", run_id="run-9")
    assert len(ingest_root(store, root, "default").jobs) == 3
    assert len(ingest_root(store, root).jobs) == 1
    assert ingest_root(store, root) == type(ingest_root(store, root))()
    assert ingest_root(store, tmp_path / "none").jobs == ()


def test_a_root_can_be_limited_to_what_changed_lately(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    old, new = write_job(tmp_path, run_id="old"), write_job(tmp_path, run_id="new")
    for log in old.logs():
        os.utime(log, ns=(10 * S, 10 * S))
    assert len(ingest_root(store, tmp_path, since_ns=20 * S).jobs) == 1
    assert [job.run_id for job in queries.jobs(store)] == ["new"]
    assert new.path.exists()


def test_links_are_not_followed(store: Store, tmp_path: Path, write_job: WriteJob) -> None:
    outside, root = write_job(tmp_path / "outside"), tmp_path / "runs"
    inside = write_job(root, run_id="inside")
    (root / "link").symlink_to(tmp_path / "outside" / outside.path.parts[-5])
    (inside.nodes / "link.jsonl").symlink_to(next(iter(outside.logs())))
    inside.cursor.symlink_to("/etc/passwd")
    os.mkfifo(inside.nodes / "pipe.jsonl")
    report = ingest_root(store, root)
    assert (len(report.jobs), report.new_events, report.problems) == (1, 19, ())
    assert [job.run_id for job in queries.jobs(store)] == ["inside"]


def test_a_database_that_is_away_loses_nothing(tmp_path: Path, write_job: WriteJob) -> None:
    run, url = write_job(tmp_path / "runs"), f"sqlite:///{tmp_path}/ett.db"
    store = open_store(url)
    with pytest.raises(StoreMismatch):
        ingest_run_dir(store, run.path)
    upgrade(url)
    assert ingest_root(store, tmp_path / "runs").new_events == 19


def test_rebuilding_from_the_run_directories_gives_the_same_rows(
    store: Store, tmp_path: Path, write_job: WriteJob
) -> None:
    root = tmp_path / "runs"
    for number in range(2):
        write_job(root, run_id=f"run-{number}")
    ingest_root(store, root)
    shutil.move(root, tmp_path / "moved")
    url = f"sqlite:///{tmp_path}/again.db"
    upgrade(url)
    again = open_store(url)
    ingest_root(again, tmp_path / "moved")
    assert _rows(again, but=("updated_ns",)) == _rows(store, but=("updated_ns",))


def test_a_job_may_have_more_logs_than_a_statement_takes_values(
    tmp_path: Path, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One trainer with a flood of logs would otherwise keep the whole fleet from being read."""
    run, other = write_job(tmp_path / "runs"), write_job(tmp_path / "runs", run_id="zoo")
    for number in range(100):
        (run.nodes / f"flood-{number}.jsonl").touch()
    url = f"sqlite:///{tmp_path}/ett.db"
    upgrade(url)
    store = open_store(url)
    monkeypatch.setattr("airflow_ett.store.sources._AT_ONCE", 50)

    @event.listens_for(store._engine, "connect")
    def narrow(connection: Any, _record: Any) -> None:
        connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 60)

    for _ in range(2):
        assert ingest_root(store, tmp_path / "runs").problems == ()
        assert ingest_run_dir(store, other.path).problems == ()
    assert rebuild(store, [tmp_path / "runs"]).from_logs == 2
    with store.read() as connection:
        assert len(connection.scalars(select(tables.job.c.job)).all()) == 2
    store.close()
