"""Who may call and asked for what; sweeps that pause; leases by renewals; what is left to gain; studies; plans."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_OWNED = ("sweeps", "models", "clusters", "checks", "retunes", "mfu_gates", "webhooks")


def upgrade() -> None:
    for table in _OWNED:
        op.add_column(table, sa.Column("created_by", sa.String(), server_default=sa.text("''"), nullable=False))
    for table in ("sweeps", "checks"):
        op.add_column(table, sa.Column("renewals", sa.Integer(), server_default="0", nullable=False))
        op.add_column(table, sa.Column("lease_s", sa.Double(), nullable=True))
    op.add_column("deliveries", sa.Column("owner", sa.String(), nullable=True))
    op.add_column("measurements", sa.Column("timeline", sa.Text(), nullable=True))
    op.add_column("sweeps", sa.Column("pause_requested", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("sweeps", sa.Column("under_faults", sa.Boolean(), server_default=sa.false(), nullable=False))
    for name in ("profile", "front"):
        op.add_column("sweeps", sa.Column(name, sa.Text(), server_default=sa.text("'[]'"), nullable=False))
    op.add_column("sweeps", sa.Column("interventions", sa.Text(), server_default="{}", nullable=False))
    op.add_column("sweeps", sa.Column("thinned_at", sa.Double(), nullable=True))
    op.add_column("sweeps", sa.Column("prospects", sa.Text(), nullable=True))
    op.add_column("trials", sa.Column("expected_gain", sa.Double(), nullable=True))
    op.add_column("trials", sa.Column("waiting", sa.Text(), nullable=True))
    op.add_column("trials", sa.Column("runs", sa.Text(), server_default=sa.text("'[]'"), nullable=False))
    op.create_index("ix_sweeps_created_by_state_finished_at", "sweeps", ["created_by", "state", "finished_at"])
    op.create_index("ix_sweeps_thinned_at_finished_at", "sweeps", ["thinned_at", "finished_at"])
    _create_access()
    op.create_table(
        "workers",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_workers"),
    )
    op.create_index("ix_workers_seen_at", "workers", ["seen_at"])
    _create_optimizer_studies()
    _create_plans()


def _create_access() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("scope", sa.String(length=32), nullable=False),
        sa.Column("quota", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("expires_at", sa.Double()),
        sa.Column("revoked_at", sa.Double()),
        sa.Column("last_used_at", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("token_id", sa.String(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["token_id"], ["tokens.id"], name="fk_sessions_token_id_tokens"),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
    )
    op.create_index("ix_sessions_token_id", "sessions", ["token_id"])
    op.create_index("ix_sessions_expires_at", "sessions", ["expires_at"])
    op.create_table(
        "audit",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("caller", sa.String(), nullable=False),
        sa.Column("token_id", sa.String()),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_at_id", "audit", ["at", "id"])
    op.create_index("ix_audit_caller_at_id", "audit", ["caller", "at", "id"])


def _create_optimizer_studies() -> None:
    op.create_table(
        "optimizer_studies",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("idempotency_key", sa.String()),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double()),
        sa.Column("finished_at", sa.Double()),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("owner", sa.String()),
        sa.Column("lease_until", sa.Double()),
        sa.Column("renewals", sa.Integer(), nullable=False),
        sa.Column("lease_s", sa.Double()),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_optimizer_studies"),
        sa.UniqueConstraint("idempotency_key", name="uq_optimizer_studies_idempotency_key"),
    )
    op.create_index("ix_optimizer_studies_created_at_id", "optimizer_studies", ["created_at", "id"])
    op.create_index("ix_optimizer_studies_state_created_at_id", "optimizer_studies", ["state", "created_at", "id"])
    op.create_table(
        "optimizer_trials",
        sa.Column("study_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("study_id", "number", name="pk_optimizer_trials"),
        sa.ForeignKeyConstraint(
            ["study_id"], ["optimizer_studies.id"], name="fk_optimizer_trials_study_id_optimizer_studies"
        ),
    )


def _create_plans() -> None:
    op.create_table(
        "plans",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("computed_at", sa.Double()),
        sa.Column("answer", sa.Text()),
        sa.Column("num_done", sa.Integer(), nullable=False),
        sa.Column("num_known", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String()),
        sa.Column("lease_until", sa.Double()),
        sa.Column("renewals", sa.Integer(), nullable=False),
        sa.Column("lease_s", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_plans"),
    )
    op.create_index("ix_plans_created_at", "plans", ["created_at"])
    op.create_index("ix_plans_owner", "plans", ["owner"])


def downgrade() -> None:
    # The older release knows no pause: it takes such a sweep up again.
    op.execute("UPDATE sweeps SET state = 'queued' WHERE state = 'paused'")
    for table in ("plans", "optimizer_trials", "optimizer_studies", "workers", "audit", "sessions", "tokens"):
        op.drop_table(table)
    op.drop_index("ix_sweeps_thinned_at_finished_at", "sweeps")
    op.drop_index("ix_sweeps_created_by_state_finished_at", "sweeps")
    # Nor does it know trials that wait: it takes them for running ones.
    op.execute("UPDATE trials SET state = 'running' WHERE state = 'waiting'")
    for name in ("runs", "waiting", "expected_gain"):
        op.drop_column("trials", name)
    for name in ("prospects", "thinned_at", "interventions", "front", "profile", "under_faults", "pause_requested"):
        op.drop_column("sweeps", name)
    op.drop_column("measurements", "timeline")
    op.drop_column("deliveries", "owner")
    for table in ("checks", "sweeps"):
        op.drop_column(table, "lease_s")
        op.drop_column(table, "renewals")
    for table in reversed(_OWNED):
        op.drop_column(table, "created_by")
