"""The job logs that the API holds, and the sums that it tells."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


_COMPONENTS = (
    *("scheduling", "trainer_init", "pt2_compile", "effective", "wasted", "shutdown"),
    "unattributed",
)
_SUMS = (
    *("measured", "measured_held_ns", "held_weighted_ms", "ett_ppm"),
    *("tts_ns", "ttr_ns", "recoveries"),
    *(f"{name}_spent_ns" for name in _COMPONENTS),
    *(f"{name}_weighted_ms" for name in _COMPONENTS),
)
_AT_ONCE = 500


def upgrade() -> None:
    """Add the table, what was exported and pruned of a job, and the sums; the rollup starts anew.

    The recoveries of the jobs that are there are taken from their results.
    """
    op.create_table(
        "ett_file",
        sa.Column("job", sa.String, primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("time_ns", sa.BigInteger, nullable=False),
    )
    for name in ("exported_ns", "exported_events", "pruned_events", "ttr_ns", "recoveries"):
        op.add_column("ett_job", sa.Column(name, sa.BigInteger))
    op.create_index("ix_ett_job_run", "ett_job", ["dag_id", "run_id"])
    op.create_index("ix_ett_job_state", "ett_job", ["state", "begin_ns"])
    for name, sqlite, postgres in (
        ("ix_ett_job_live", "frozen = 0", "NOT frozen"),
        ("ix_ett_job_changed", "rolled_up IS 0", "rolled_up IS false"),
    ):
        op.create_index(
            name,
            "ett_job",
            ["dag_id"],
            sqlite_where=sa.text(sqlite),
            postgresql_where=sa.text(postgres),
        )
    op.drop_index("ix_ett_job_rolled_up", "ett_job")
    _tell_recoveries(op.get_bind())
    for name in _SUMS:
        whole = sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
        op.add_column("ett_rollup", whole)
    op.create_index("ix_ett_rollup_dag", "ett_rollup", ["dag_id", "day"])
    op.execute("DELETE FROM ett_rollup")
    op.execute("UPDATE ett_job SET rolled_up = false, rolled_up_day = NULL")


def _tell_recoveries(connection: sa.Connection) -> None:
    names = ("job", "ttr_ns", "recoveries")
    columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in names]
    job = sa.table("ett_job", *columns, sa.column("result", sa.JSON))
    last = ""
    while True:
        query = sa.select(job.c.job, job.c.result).where(job.c.job > last)
        rows = connection.execute(query.order_by(job.c.job).limit(_AT_ONCE)).all()
        if not rows:
            return
        change = sa.update(job).where(job.c.job == sa.bindparam("id"))
        connection.execute(change, [{"id": row.job, **_recoveries(row.result)} for row in rows])
        last = rows[-1].job


def _recoveries(result: dict[str, Any]) -> dict[str, int]:
    by_user = ("user_cancelled", "user_restart")
    told = [r["ns"] for r in result["ttr"] if r["recovered"] and r["cause"] not in by_user]
    return {"ttr_ns": min(sum(told), 2**63 - 1), "recoveries": len(told)}
