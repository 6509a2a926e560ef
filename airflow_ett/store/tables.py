"""The tables. Instants are UTC nanoseconds and lengths nanoseconds, both as 64-bit integers.

``ett_event`` mirrors the job logs; ``ett_source`` and ``ett_quarantine`` say how far and how well
they were read. Everything else is a projection that the next ingest makes again. JSON is kept as
text (not JSONB), which takes every string that a log can hold.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

from airflow_ett.store.storable import LONGEST, NAME_LENGTH
from airflow_ett.store.sums import MEASURES

metadata = MetaData()


def _key(name: str, kind: Any = String) -> Column[Any]:
    info = {LONGEST: NAME_LENGTH} if kind is String else {}
    return Column(name, kind, primary_key=True, autoincrement=False, info=info)


def _whole(name: str) -> Column[Any]:
    return Column(name, BigInteger, nullable=False)


def _text(name: str) -> Column[Any]:
    return Column(name, String, nullable=False)


def _name(name: str) -> Column[Any]:
    return Column(name, String, nullable=False, info={LONGEST: NAME_LENGTH})


def _json(name: str) -> Column[Any]:
    return Column(name, JSON, nullable=False)


def _attempt() -> tuple[Column[Any], Column[Any], Column[Any]]:
    names = ("submission", "scheduler_restart", "elastic_restart")
    first, second, third = (_key(name, BigInteger) for name in names)
    return first, second, third


event = Table(
    "ett_event",
    metadata,
    _key("job"),
    _key("writer"),
    _key("seq", BigInteger),
    _whole("time_ns"),
    _text("kind"),
    Column("submission", BigInteger),
    Column("scheduler_restart", BigInteger),
    Column("elastic_restart", BigInteger),
    Column("rank", BigInteger),
    _json("data"),
    _json("extra"),
)

source = Table(
    "ett_source",
    metadata,
    _key("path"),
    _text("job"),
    _whole("offset"),
    Index("ix_ett_source_job", "job"),
)

quarantine = Table(
    "ett_quarantine",
    metadata,
    _key("path"),
    _key("offset", BigInteger),
    Column("problem", Text, nullable=False),
)

job = Table(
    "ett_job",
    metadata,
    _key("job"),
    _name("deployment"),
    _name("dag_id"),
    _name("run_id"),
    _name("task_id"),
    _whole("map_index"),
    _whole("generation"),
    _text("state"),
    _text("quality"),
    Column("frozen", Boolean, nullable=False),
    _whole("begin_ns"),
    _whole("end_ns"),
    _whole("wall_ns"),
    _whole("held_ns"),
    _whole("effective_ns"),
    Column("ett_pct", Float),
    Column("tts_ns", BigInteger),
    # The times to recover that succeeded, after failures, and how many these are.
    Column("ttr_ns", BigInteger),
    Column("recoveries", BigInteger),
    # For how long its versions were published, while nothing was held for it.
    Column("released_ns", BigInteger),
    _whole("nof"),
    _json("nof_by_cause"),
    _json("components_ns"),
    _whole("attempts"),
    _whole("accelerators"),
    _json("result"),
    _whole("revision"),
    _whole("updated_ns"),
    # Components.digest of those it was measured with.
    Column("mapping", String),
    # The rollup's bookkeeping: does it know this row, and under which day did it book it?
    Column("rolled_up", Boolean, nullable=False),
    Column("rolled_up_day", String),
    # When the raw events of a job were last exported, and how many.
    Column("exported_ns", BigInteger),
    Column("exported_events", BigInteger),
    # How many raw events were pruned: with fewer in the database the job is not measured again.
    Column("pruned_events", BigInteger),
    Index("ix_ett_job_dag", "dag_id", "begin_ns"),
    Index("ix_ett_job_run", "dag_id", "run_id"),
    Index("ix_ett_job_state", "state", "begin_ns"),
    Index("ix_ett_job_begin", "begin_ns"),
    Index("ix_ett_job_end", "end_ns"),
    # Of the few jobs that go on, or that the rollup doesn't know. Each database recognises the
    # condition only as its own statements have it.
    Index(
        "ix_ett_job_live",
        "dag_id",
        sqlite_where=text("frozen = 0"),
        postgresql_where=text("NOT frozen"),
    ),
    Index(
        "ix_ett_job_changed",
        "dag_id",
        sqlite_where=text("rolled_up IS 0"),
        postgresql_where=text("rolled_up IS false"),
    ),
)

submission = Table(
    "ett_submission",
    metadata,
    _key("job"),
    _key("submission", BigInteger),
    _whole("submitted_ns"),
    Column("app", String),
    Column("handle", String),
    Column("layer", String),
    Column("try_number", BigInteger),
    Column("resume_cursor", BigInteger),
)

attempt = Table(
    "ett_attempt",
    metadata,
    _key("job"),
    *_attempt(),
    Column("try_number", BigInteger),
    Column("layer", String),
    Column("cause", String),
    Column("begin_ns", BigInteger),
    Column("end_ns", BigInteger),
    Column("detected_ns", BigInteger),
    Column("cursor_from", BigInteger),
    Column("cursor_to", BigInteger),
    Column("resumed_from", JSON),
    Column("evidence", JSON),
    Column("host", String),
    Column("log", Text),
)

phase = Table(
    "ett_phase",
    metadata,
    _key("job"),
    *_attempt(),
    _key("phase"),
    _text("component"),
    _whole("ns"),
)

checkpoint = Table(
    "ett_checkpoint",
    metadata,
    _key("job"),
    _key("number", BigInteger),
    _text("uri"),
    Column("attempt", String),
    Column("cursor", BigInteger),
    Column("saved_ns", BigInteger),
    Column("committed_ns", BigInteger),
    Column("blocking_ns", BigInteger),
    Column("upload_ns", BigInteger),
    Column("bytes", BigInteger),
    Column("anchor", Boolean, nullable=False),
)

publish = Table(
    "ett_publish",
    metadata,
    _key("job"),
    _key("number", BigInteger),
    Column("version", String),
    Column("uri", String),
    Column("begin_ns", BigInteger),
    Column("end_ns", BigInteger),
    Column("name", String),
    Column("registry", String),
    Column("checkpoint", String),
    Column("cursor", BigInteger),
    Column("bytes", BigInteger),
    Column("digest", String),
    Column("existed", Boolean, nullable=False),
    _whole("released_ns"),
)

rollup = Table(
    "ett_rollup",
    metadata,
    _key("day"),
    _key("deployment"),
    _key("dag_id"),
    _text("timezone"),
    _whole("jobs"),
    _whole("attempts"),
    _whole("wall_ns"),
    _whole("held_ns"),
    _whole("effective_ns"),
    _whole("released_weighted_ms"),
    _json("components_ns"),
    _json("accelerator_ns"),
    _json("failures"),
    *(_whole(name) for name in MEASURES),
    Index("ix_ett_rollup_dag", "dag_id", "day"),
)

file = Table(
    "ett_file",
    metadata,
    _key("job"),
    _key("name"),
    Column("content", LargeBinary, nullable=False),
    _whole("time_ns"),
)

PROJECTED = (submission, attempt, phase, checkpoint, publish)
"""The tables whose rows of a job are replaced as a whole; each has a column ``job``."""
