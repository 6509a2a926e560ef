"""The job logs that the API holds: their files beside their events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table, and when the events of a job that the API holds were exported."""
    op.create_table(
        "ett_file",
        sa.Column("job", sa.String, primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("time_ns", sa.BigInteger, nullable=False),
    )
    op.add_column("ett_job", sa.Column("exported_ns", sa.BigInteger))
