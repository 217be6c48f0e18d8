"""First tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sweeps",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("idempotency_key", sa.String()),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double()),
        sa.Column("finished_at", sa.Double()),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("owner", sa.String()),
        sa.Column("lease_until", sa.Double()),
        sa.Column("stop_reason", sa.String(32)),
        sa.Column("stop_detail", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sweeps"),
        sa.UniqueConstraint("idempotency_key", name="uq_sweeps_idempotency_key"),
    )
    op.create_index("ix_sweeps_created_at_id", "sweeps", ["created_at", "id"])
    op.create_index("ix_sweeps_state_created_at_id", "sweeps", ["state", "created_at", "id"])

    op.create_table(
        "trials",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("sweep_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("layout", sa.Text(), nullable=False),
        sa.Column("tensor_parallel_degree", sa.Integer(), nullable=False),
        sa.Column("pipeline_parallel_degree", sa.Integer(), nullable=False),
        sa.Column("micro_batch_size", sa.Integer(), nullable=False),
        sa.Column("prediction", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.Double()),
        sa.Column("finished_at", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_trials"),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_trials_sweep_id_sweeps"),
        sa.UniqueConstraint("sweep_id", "number", name="uq_trials_sweep_id_number"),
    )

    op.create_table(
        "measurements",
        sa.Column("trial_id", sa.String(), nullable=False),
        sa.Column("sweep_id", sa.String(), nullable=False),
        sa.Column("mfu", sa.Double(), nullable=False),
        sa.Column("step_time_s", sa.Double(), nullable=False),
        sa.Column("tokens_per_s", sa.Double(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("trial_id", name="pk_measurements"),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name="fk_measurements_trial_id_trials"),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_measurements_sweep_id_sweeps"),
    )
    op.create_index("ix_measurements_ranking", "measurements", [sa.text("mfu DESC"), "trial_id"])
    op.create_index("ix_measurements_sweep_ranking", "measurements", ["sweep_id", sa.text("mfu DESC"), "trial_id"])

    op.create_table(
        "failures",
        sa.Column("trial_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("trial_id", name="pk_failures"),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name="fk_failures_trial_id_trials"),
    )

    op.create_table(
        "steps",
        sa.Column("trial_id", sa.String(), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("trial_id", "step", name="pk_steps"),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name="fk_steps_trial_id_trials"),
    )

    op.create_table(
        "events",
        sa.Column("sweep_id", sa.String(), nullable=False),
        sa.Column("sequence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("sweep_id", "sequence", name="pk_events"),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_events_sweep_id_sweeps"),
    )

    for name in ("models", "clusters"):
        op.create_table(
            name,
            sa.Column("name", sa.String(), nullable=False),
            sa.Column("document", sa.Text(), nullable=False),
            sa.PrimaryKeyConstraint("name", name=f"pk_{name}"),
        )


def downgrade() -> None:
    for name in ("clusters", "models", "events", "steps", "failures", "measurements", "trials", "sweeps"):
        op.drop_table(name)
