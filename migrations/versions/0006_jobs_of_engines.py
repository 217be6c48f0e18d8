"""Trials keep the jobs that engines were given for them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("jobs", sa.Text(), server_default=sa.text("'[]'"), nullable=False))


def downgrade() -> None:
    op.drop_column("trials", "jobs")
