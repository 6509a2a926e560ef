"""With which components a job was measured, and a job's sources without a search."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column and the index. The next ingest measures jobs without a mapping again."""
    op.add_column("ett_job", sa.Column("mapping", sa.String))
    op.create_index("ix_ett_source_job", "ett_source", ["job"])
