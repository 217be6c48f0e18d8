"""Trials run on fewer ranks than their job has, and what is estimated of them is what they are ranked by."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_sweeps = sa.table("sweeps", sa.column("id", sa.Text()), sa.column("request", sa.Text()))


def upgrade() -> None:
    op.add_column("sweeps", sa.Column("trial_cluster_name", sa.String(), nullable=True))
    op.add_column("trials", sa.Column("scaled", sa.Text(), nullable=True))
    op.add_column("measurements", sa.Column("estimate", sa.Text(), nullable=True))


def downgrade() -> None:
    # The older release would take the measurement of a small trial for one of its layout: such sweeps keep a field
    # that it does not know, so that it says that it cannot read them, and their trials lose their ranks.
    connection = op.get_bind()
    for sweep_id, text in connection.execute(sa.select(_sweeps.c.id, _sweeps.c.request)).all():
        request = json.loads(text)
        if request.pop("trial_cluster", None) is None:
            plain = json.dumps(request, allow_nan=False, separators=(",", ":"))
            connection.execute(sa.update(_sweeps).where(_sweeps.c.id == sweep_id).values(request=plain))
    op.execute("UPDATE measurements SET is_ranked = FALSE WHERE estimate IS NOT NULL")
    op.drop_column("measurements", "estimate")
    op.drop_column("trials", "scaled")
    op.drop_column("sweeps", "trial_cluster_name")
