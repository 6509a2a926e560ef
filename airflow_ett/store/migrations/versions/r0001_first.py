"""The first tables.

A revision keeps its own copy of the tables as they were, whatever ``store.tables`` says later.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_ATTEMPT = ("submission", "scheduler_restart", "elastic_restart")


def upgrade() -> None:
    """Create the tables."""
    _logs()
    _job()
    _attempts()
    _artifacts()
    _rollup()


def _logs() -> None:
    op.create_table(
        "ett_event",
        *_keys(job=sa.String, writer=sa.String, seq=sa.BigInteger),
        *_needed(time_ns=sa.BigInteger, kind=sa.String),
        *_wholes(*_ATTEMPT, "rank"),
        *_needed(data=sa.JSON, extra=sa.JSON),
    )
    op.create_table(
        "ett_source",
        *_keys(path=sa.String),
        *_needed(job=sa.String, offset=sa.BigInteger),
    )
    op.create_table(
        "ett_quarantine",
        *_keys(path=sa.String, offset=sa.BigInteger),
        *_needed(problem=sa.Text),
    )


def _job() -> None:
    whole = sa.BigInteger
    op.create_table(
        "ett_job",
        *_keys(job=sa.String),
        *_needed(deployment=sa.String, dag_id=sa.String, run_id=sa.String, task_id=sa.String),
        *_needed(map_index=whole, generation=whole),
        *_needed(state=sa.String, quality=sa.String, frozen=sa.Boolean),
        *_needed(begin_ns=whole, end_ns=whole, wall_ns=whole, held_ns=whole, effective_ns=whole),
        sa.Column("ett_pct", sa.Float),
        sa.Column("tts_ns", whole),
        *_needed(nof=whole, nof_by_cause=sa.JSON, components_ns=sa.JSON),
        *_needed(attempts=whole, accelerators=whole, result=sa.JSON),
        *_needed(revision=whole, updated_ns=whole, rolled_up=sa.Boolean),
        sa.Column("rolled_up_day", sa.String),
    )
    op.create_index("ix_ett_job_dag", "ett_job", ["dag_id", "begin_ns"])
    op.create_index("ix_ett_job_begin", "ett_job", ["begin_ns"])
    op.create_index("ix_ett_job_end", "ett_job", ["end_ns"])
    op.create_index("ix_ett_job_rolled_up", "ett_job", ["rolled_up"])


def _attempts() -> None:
    op.create_table(
        "ett_submission",
        *_keys(job=sa.String, submission=sa.BigInteger),
        *_needed(submitted_ns=sa.BigInteger),
        *_texts("app", "handle", "layer"),
        *_wholes("try_number", "resume_cursor"),
    )
    attempt = dict.fromkeys(_ATTEMPT, sa.BigInteger)
    op.create_table(
        "ett_attempt",
        *_keys(job=sa.String, **attempt),
        *_wholes("try_number", "begin_ns", "end_ns", "detected_ns", "cursor_from", "cursor_to"),
        *_texts("layer", "cause", "host"),
        sa.Column("resumed_from", sa.JSON),
        sa.Column("evidence", sa.JSON),
    )
    op.create_table(
        "ett_phase",
        *_keys(job=sa.String, **attempt, phase=sa.String),
        *_needed(component=sa.String, ns=sa.BigInteger),
    )


def _artifacts() -> None:
    op.create_table(
        "ett_checkpoint",
        *_keys(job=sa.String, number=sa.BigInteger),
        *_needed(uri=sa.String),
        *_texts("attempt"),
        *_wholes("cursor", "saved_ns", "committed_ns", "blocking_ns", "upload_ns", "bytes"),
        *_needed(anchor=sa.Boolean),
    )
    op.create_table(
        "ett_publish",
        *_keys(job=sa.String, number=sa.BigInteger),
        *_texts("version", "uri"),
        *_wholes("begin_ns", "end_ns"),
    )


def _rollup() -> None:
    whole = sa.BigInteger
    op.create_table(
        "ett_rollup",
        *_keys(day=sa.String, deployment=sa.String, dag_id=sa.String),
        *_needed(timezone=sa.String, jobs=whole, attempts=whole),
        *_needed(wall_ns=whole, held_ns=whole, effective_ns=whole),
        *_needed(components_ns=sa.JSON, accelerator_ns=sa.JSON, failures=sa.JSON),
    )


def _keys(**kinds: Any) -> list[sa.Column[Any]]:
    return [sa.Column(n, k, primary_key=True, autoincrement=False) for n, k in kinds.items()]


def _needed(**kinds: Any) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name, kind in kinds.items()]


def _wholes(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.BigInteger) for name in names]


def _texts(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.String) for name in names]
