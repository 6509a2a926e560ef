"""A fleet's history in a database: a few trainings as their Sessions tell them, copied by SQL."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from sqlalchemy import Connection, Table, text

from airflow_ett.events import AttemptId, JobKey, LogWriter, RunDir, trainer_writer
from airflow_ett.fleet import roll_up
from airflow_ett.store import Store, ingest_root, tables

SECOND = 1_000_000_000
YEARS_NS = 2 * 365 * 86_400 * SECOND
END = 1_790_000_000 * SECOND
"""The end of the history, 21 September 2026."""

DEPLOYMENT = "fleet"
DAGS = 300
LIVE = 200
ATTEMPTS = (1, 1, 2, 3, 3, 4, 4, 6)
"""How often the trainings that are copied were attempted: three times on average."""

FAILED = 4
"""The number of the training that fails for good."""

_AT_ONCE = 50_000
_CHECKPOINTS = 2


def write_training(
    root: Path,
    key: JobKey,
    *,
    begin_ns: int,
    attempts: int = 1,
    intervals: int = 20,
    state: str | None = "succeeded",
) -> RunDir:
    """Write the log of a training below ``root``; every attempt but the last fails.

    ``state`` None means that it goes on. An interval lasts 30 s; a tenth of them is followed by an
    evaluation, and a checkpoint is saved twice in an attempt.
    """
    run = RunDir(root / key.path)
    launcher = LogWriter(run.launcher / "e00000001.jsonl", job=key.id, writer="launcher-1")
    opening = {"key": asdict(key), "scheduler": "slurm", "accelerators": 8}
    launcher.append("job_opened", opening, time_ns=begin_ns)
    at, cursor = begin_ns, 0
    for number in range(1, attempts + 1):
        attempt = AttemptId(number)
        layer = "airflow" if number > 1 else "first"
        submitted = {"submission": number, "app": f"app-{number}", "handle": f"slurm://x/{number}"}
        submitted |= {"layer": layer, "try": number, "resume_cursor": cursor}
        launcher.append("submitted", submitted, time_ns=at, attempt=attempt)
        at, cursor = _train(run, key.id, attempt, at + 20 * SECOND, cursor, intervals)
        good = number == attempts and state != "failed"
        if number < attempts or state is not None:
            cause = None if good else ("preempted", "infrastructure", "application")[number % 3]
            evidence = {"text": "the node went away", "exit_code": 1}
            at += 15 * SECOND
            told = {"cause": cause, "evidence": evidence}
            launcher.append("attempt_ended", told, time_ns=at, attempt=attempt)
        at += 30 * SECOND
    if state is not None:
        launcher.append("job_ended", {"state": state, "cause": None}, time_ns=at)
    launcher.close()
    return run


def _train(
    run: RunDir, job: str, attempt: AttemptId, at: int, cursor: int, intervals: int
) -> tuple[int, int]:
    """Write what one trainer tells; return when it ends and where a checkpoint is."""
    writer = trainer_writer(attempt, 0, 4_000 + attempt.submission)
    log = LogWriter(run.nodes / f"{writer}.jsonl", job=job, writer=writer, attempt=attempt, rank=0)
    process = {"role": "trainer", "pid": 4_000, "host": "node-17", "node": 0, "world_size": 8}
    log.append("process_started", process, time_ns=at)
    log.append("session_started", {"cursor_hwm": cursor, "torch": "2.9.0"}, time_ns=at)
    spans = 0

    def phase(name: str, seconds: int) -> None:
        nonlocal at, spans
        span = {"span": spans, "phase": name, "lane": "main"}
        log.append("phase_begin", span, time_ns=at)
        at, spans = at + seconds * SECOND, spans + 1
        log.append("phase_end", {"span": span["span"]}, time_ns=at)

    phase("train_module_creation", 15)
    saved = cursor
    for number in range(intervals):
        begin, at, first, cursor = at, at + 30 * SECOND, cursor, cursor + 7_680
        interval = {"from": begin, "to": at, "cursor_from": first, "cursor_to": cursor}
        interval |= {"steps": 30, "step_ns": 28 * SECOND, "wait_ns": 2 * SECOND, "other_ns": 0}
        log.append("interval", interval, time_ns=at)
        if number % 10 == 9:
            phase("evaluation", 4)
        if number % (intervals // _CHECKPOINTS or 1) == 0:
            saved = cursor
            facts = {"checkpoint": f"s3://training/{job}/{saved}", "cursor": saved}
            log.append("checkpoint_saved", {**facts, "blocking_ns": SECOND}, time_ns=at)
            facts |= {"bytes": 10**9, "upload_ns": 9 * SECOND, "anchor": False}
            log.append("checkpoint_committed", facts, time_ns=at)
    log.close()
    return at, saved


def fill(store: Store, jobs: int) -> None:
    """Fill an empty database with so many jobs of two years; the newest are live.

    Three attempts and twenty phases a job; of the 300 DAGs the largest has a twenty-fifth of the
    jobs. The rollup knows all days but the last.
    """
    with tempfile.TemporaryDirectory() as folder:
        for number, attempts in enumerate(ATTEMPTS):
            key = JobKey("template", "dag", f"run-{number}", "train")
            state = "failed" if number == FAILED else "succeeded"
            write_training(Path(folder), key, begin_ns=END, attempts=attempts, state=state)
        live = JobKey("template", "dag", "live", "train")
        write_training(Path(folder), live, begin_ns=END, state=None)
        ingest_root(store, Path(folder))
    store.write(_set_templates_aside)
    filled = [tables.job, *tables.PROJECTED]
    if not store.is_sqlite:
        store.write(lambda connection: _drop_keys(connection, filled))
    for first in range(0, jobs, _AT_ONCE):
        last = min(first + _AT_ONCE, jobs)
        store.write(lambda connection, f=first, n=last: _copy(connection, jobs, f, n))  # type: ignore[misc]
    store.write(_clean_up)
    if not store.is_sqlite:
        store.write(lambda connection: _make_keys(connection, filled))
    store.write(_forget_a_job_a_day)
    roll_up(store, timezone="UTC")
    store.write(_change_the_last_day)


def _set_templates_aside(connection: Connection) -> None:
    for table in (tables.job, *tables.PROJECTED):
        connection.execute(text(f"CREATE TABLE template_{table.name} AS SELECT * FROM {table}"))
        connection.execute(text(f"DELETE FROM {table}"))
    numbered = "row_number() OVER (PARTITION BY frozen ORDER BY run_id) - 1 AS number"
    connection.execute(
        text(f"CREATE TABLE template AS SELECT job, frozen, {numbered} FROM template_ett_job")
    )


def _drop_keys(connection: Connection, filled: list[Table]) -> None:
    for table in filled:
        connection.execute(text(f"ALTER TABLE {table} DROP CONSTRAINT {table}_pkey"))
        for index in table.indexes:
            index.drop(connection)


def _make_keys(connection: Connection, filled: list[Table]) -> None:
    connection.execute(text("SET LOCAL maintenance_work_mem = '1GB'"))
    for table in filled:
        columns = ", ".join(column.name for column in table.primary_key)
        connection.execute(text(f"ALTER TABLE {table} ADD PRIMARY KEY ({columns})"))
        for index in table.indexes:
            index.create(connection)
    connection.execute(text("ANALYZE"))


def _copy(connection: Connection, jobs: int, first: int, last: int) -> None:
    """Copy the templates to the jobs numbered ``first`` up to ``last``, oldest first."""
    step = YEARS_NS // jobs
    begin = f"CAST({step} AS BIGINT) * n"
    if connection.dialect.name == "sqlite":
        series = "WITH RECURSIVE s(n) AS (SELECT :first UNION ALL SELECT n + 1 FROM s"
        series += " WHERE n + 1 < :last)"
        name = "printf('%020x', n * 2654435761 % 1000000007 * 1000003 + n)"
    else:
        series = "WITH s AS (SELECT generate_series(:first, :last - 1) AS n)"
        name = "substr(md5(n::text), 1, 20)"
    # The square of an even spread: many DAGs are small, some large.
    spread = "((n % 1009 * 7919) % 1009) / 1009.0"
    dag = f"CAST({DAGS} * {spread} * {spread} AS INTEGER)"
    connection.execute(
        text(
            f"CREATE TABLE picked AS {series} SELECT n, {name} AS job, {dag} AS dag,"
            f" {begin} - {YEARS_NS} AS shift, template.job AS template FROM s JOIN template"
            f" ON template.frozen = (n < :live) AND template.number ="
            f" CASE WHEN n < :live THEN n % {len(ATTEMPTS)} ELSE 0 END"
        ),
        {"first": first, "last": last, "live": jobs - min(LIVE, jobs // 10)},
    )
    day = _day(connection, "t.end_ns + p.shift")
    texts = {"deployment": f"'{DEPLOYMENT}'", "dag_id": "'dag-' || p.dag", "run_id": "'r-' || p.n"}
    booked = {"rolled_up": "true", "rolled_up_day": f"CASE WHEN t.frozen THEN {day} END"}
    _insert(connection, tables.job, texts | booked)
    for table in tables.PROJECTED:
        _insert(connection, table, {})
    connection.execute(text("DROP TABLE picked"))


def _insert(connection: Connection, table: Table, values: Mapping[str, str]) -> None:
    said = {"job": "p.job", **values}
    for column in table.columns:
        if column.name in ("begin_ns", "end_ns", "detected_ns", "submitted_ns", "saved_ns"):
            said[column.name] = f"t.{column.name} + p.shift"
    names = [column.name for column in table.columns]
    columns = ", ".join(f'"{name}"' for name in names)
    sources = ", ".join(said.get(name, f't."{name}"') for name in names)
    joined = f"picked p JOIN template_{table.name} t ON t.job = p.template"
    connection.execute(text(f"INSERT INTO {table} ({columns}) SELECT {sources} FROM {joined}"))


def _clean_up(connection: Connection) -> None:
    for table in (tables.job, *tables.PROJECTED):
        connection.execute(text(f"DROP TABLE template_{table.name}"))
    connection.execute(text("DROP TABLE template"))
    connection.execute(tables.event.delete())
    connection.execute(tables.source.delete())


def _forget_a_job_a_day(connection: Connection) -> None:
    """Make the rollup take every day as changed, without a change of every job."""
    one = "SELECT min(job) FROM ett_job WHERE frozen GROUP BY rolled_up_day"
    connection.execute(text(f"UPDATE ett_job SET rolled_up = false WHERE job IN ({one})"))


def _change_the_last_day(connection: Connection) -> None:
    """Let the day be one whose jobs have ended since the rollup was made."""
    last = "SELECT max(rolled_up_day) FROM ett_job"
    connection.execute(text(f"UPDATE ett_job SET rolled_up = false WHERE rolled_up_day = ({last})"))


def _day(connection: Connection, instant: str) -> str:
    seconds = f"({instant}) / {SECOND}"
    if connection.dialect.name == "sqlite":
        return f"date({seconds}, 'unixepoch')"
    return f"to_char(to_timestamp({seconds}) AT TIME ZONE 'UTC', 'YYYY-MM-DD')"
