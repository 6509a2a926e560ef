"""Where each attempt's output is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. It stays empty for jobs that have ended."""
    op.add_column("ett_attempt", sa.Column("log", sa.Text))
