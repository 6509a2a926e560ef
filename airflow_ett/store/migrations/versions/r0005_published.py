"""What publishing apart from the trainers released, and more of each published version."""

from __future__ import annotations

from collections import Counter

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_LENGTH = "CASE WHEN end_ns > begin_ns THEN end_ns - begin_ns ELSE 0 END"


def upgrade() -> None:
    """Add the columns; each version that is there counts its length. The rollup starts anew."""
    for name in ("name", "registry", "checkpoint", "digest"):
        op.add_column("ett_publish", sa.Column(name, sa.String))
    for name in ("cursor", "bytes"):
        op.add_column("ett_publish", sa.Column(name, sa.BigInteger))
    existed = sa.Column("existed", sa.Boolean, nullable=False, server_default=sa.false())
    op.add_column("ett_publish", existed)
    op.add_column("ett_publish", _whole("released_ns"))
    op.execute(f"UPDATE ett_publish SET released_ns = {_LENGTH}")
    op.add_column("ett_job", sa.Column("released_ns", sa.BigInteger))
    op.execute("UPDATE ett_job SET rolled_up = false, rolled_up_day = NULL, released_ns = 0")
    _sum_up(op.get_bind())
    op.add_column("ett_rollup", _whole("released_weighted_ms"))
    op.execute("DELETE FROM ett_rollup")


def _sum_up(connection: sa.Connection) -> None:
    """Tell each job what its versions come to. The database itself would stop beyond 64 bits."""
    publish = sa.table("ett_publish", sa.column("job"), sa.column("released_ns"))
    sums: Counter[str] = Counter()
    for job, ns in connection.execute(sa.select(publish.c.job, publish.c.released_ns)):
        sums[job] += ns
    if sums:
        job_ = sa.table("ett_job", sa.column("job"), sa.column("released_ns"))
        change = sa.update(job_).where(job_.c.job == sa.bindparam("its_job"))
        rows = [{"its_job": job, "released_ns": min(ns, 2**63 - 1)} for job, ns in sums.items()]
        connection.execute(change, rows)


def _whole(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
