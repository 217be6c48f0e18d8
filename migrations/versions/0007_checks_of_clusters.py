"""Checks of clusters, with what they found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "checks",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("cluster_name", sa.String(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double()),
        sa.Column("finished_at", sa.Double()),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("owner", sa.String()),
        sa.Column("lease_until", sa.Double()),
        sa.Column("findings", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["cluster_name"], ["clusters.name"], name="fk_checks_cluster_name_clusters"),
        sa.PrimaryKeyConstraint("id", name="pk_checks"),
    )
    op.create_index("ix_checks_cluster_name_created_at_id", "checks", ["cluster_name", "created_at", "id"])
    op.create_index("ix_checks_state_created_at_id", "checks", ["state", "created_at", "id"])


def downgrade() -> None:
    op.drop_table("checks")
