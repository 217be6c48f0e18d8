"""Create all tables of the first release.

The numbers before it belong to databases of the time before, which nothing leads to these tables.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:  # all tables at once
    op.create_table(
        "announcements",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("subject_id", sa.String(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_announcements"),
    )
    op.create_index("ix_announcements_at_id", "announcements", ["at", "id"])
    op.create_table(
        "audit",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("caller", sa.String(), nullable=False),
        sa.Column("token_id", sa.String(), nullable=True),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_at_id", "audit", ["at", "id"])
    op.create_index("ix_audit_caller_at_id", "audit", ["caller", "at", "id"])
    op.create_table(
        "baselines",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", "key", name="pk_baselines"),
    )
    op.create_table(
        "descriptions",
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", name="pk_descriptions"),
    )
    op.create_table(
        "retunes",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("is_paused", sa.Boolean(), nullable=False),
        sa.Column("incumbent", sa.Text(), nullable=True),
        sa.Column("baseline", sa.Text(), nullable=False),
        sa.Column("next_due_at", sa.Double(), nullable=True),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_retunes"),
    )
    op.create_index("ix_retunes_next_due_at", "retunes", ["next_due_at"])
    op.create_table(
        "runs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("unique_key", sa.String(), nullable=True),
        sa.Column("parent_id", sa.String(), nullable=True),
        sa.Column("awaits", sa.String(), nullable=True),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("progress", sa.Text(), nullable=True),
        sa.Column("demand", sa.Text(), nullable=True),
        sa.Column("num_changes", sa.Integer(), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("wanted", sa.String(32), nullable=True),
        sa.Column("idle_since", sa.Double(), nullable=True),
        sa.Column("idle_s", sa.Double(), nullable=False),
        sa.Column("num_reopened", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("claim", sa.Integer(), nullable=False),
        sa.Column("renewals", sa.Integer(), nullable=False),
        sa.Column("lease_s", sa.Double(), nullable=True),
        sa.Column("seen_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.UniqueConstraint("unique_key", name="uq_runs_unique_key"),
    )
    op.create_index("ix_runs_kind_created_at_id", "runs", ["kind", "created_at", "id"])
    op.create_index("ix_runs_kind_state_created_at_id", "runs", ["kind", "state", "created_at", "id"])
    op.create_index("ix_runs_kind_state_due_at_created_at_id", "runs", ["kind", "state", "due_at", "created_at", "id"])
    op.create_index("ix_runs_kind_subject_created_at_id", "runs", ["kind", "subject", "created_at", "id"])
    op.create_index("ix_runs_owner", "runs", ["owner"])
    op.create_index("ix_runs_parent_id", "runs", ["parent_id"])
    op.create_table(
        "study_trials",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_study_trials_run_id_runs"),
        sa.PrimaryKeyConstraint("run_id", "number", name="pk_study_trials"),
    )
    op.create_table(
        "sweeps",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("stop_reason", sa.String(32), nullable=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("engine", sa.String(), nullable=False),
        sa.Column("trial_cluster", sa.String(), nullable=True),
        sa.Column("metric", sa.String(32), nullable=False),
        sa.Column("under_faults", sa.Boolean(), nullable=False),
        sa.Column("profile", sa.Text(), nullable=False),
        sa.Column("front", sa.Text(), nullable=False),
        sa.Column("budget", sa.Text(), nullable=False),
        sa.Column("accelerator", sa.String(), nullable=False),
        sa.Column("stack", sa.String(), nullable=False),
        sa.Column("job_key", sa.String(), nullable=False),
        sa.Column("expected_improvement", sa.Text(), nullable=True),
        sa.Column("thinned_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["id"], ["runs.id"], name="fk_sweeps_id_runs"),
        sa.PrimaryKeyConstraint("id", name="pk_sweeps"),
    )
    op.create_index("ix_sweeps_accelerator_created_at_id", "sweeps", ["accelerator", "created_at", "id"])
    op.create_index("ix_sweeps_created_at_id", "sweeps", ["created_at", "id"])
    op.create_index("ix_sweeps_created_by_state_finished_at", "sweeps", ["created_by", "state", "finished_at"])
    op.create_index("ix_sweeps_job_key_created_at_id", "sweeps", ["job_key", "created_at", "id"])
    op.create_index("ix_sweeps_state_created_at_id", "sweeps", ["state", "created_at", "id"])
    op.create_index("ix_sweeps_thinned_at_finished_at", "sweeps", ["thinned_at", "finished_at"])
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("scope", sa.String(32), nullable=False),
        sa.Column("quota", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.Column("last_used_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
    )
    op.create_table(
        "webhooks",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("secret", sa.String(), nullable=False),
        sa.Column("kinds", sa.Text(), nullable=False),
        sa.Column("format", sa.String(32), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_webhooks"),
    )
    op.create_table(
        "workers",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_workers"),
    )
    op.create_index("ix_workers_seen_at", "workers", ["seen_at"])
    op.create_table(
        "events",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("sequence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_events_run_id_runs"),
        sa.PrimaryKeyConstraint("run_id", "sequence", name="pk_events"),
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
    op.create_index("ix_sessions_expires_at", "sessions", ["expires_at"])
    op.create_index("ix_sessions_token_id", "sessions", ["token_id"])
    op.create_table(
        "comments",
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("trial_number", sa.Integer(), nullable=True),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("sweep_id", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_comments_sweep_id_sweeps"),
        sa.PrimaryKeyConstraint("id", name="pk_comments"),
    )
    op.create_index("ix_comments_sweep_id_created_at_id", "comments", ["sweep_id", "created_at", "id"])
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
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("stopped", sa.Text(), nullable=True),
        sa.Column("jobs", sa.Text(), nullable=False),
        sa.Column("busy_s", sa.Double(), nullable=True),
        sa.Column("num_busy", sa.Integer(), nullable=False),
        sa.Column("proxy", sa.Text(), nullable=True),
        sa.Column("repeats", sa.Integer(), nullable=True),
        sa.Column("expected_gain", sa.Double(), nullable=True),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column("failure_kind", sa.String(32), nullable=True),
        sa.Column("gate", sa.Text(), nullable=True),
        sa.Column("gate_hours", sa.Double(), nullable=True),
        sa.Column("waiting", sa.Text(), nullable=True),
        sa.Column("runs", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_trials_sweep_id_sweeps"),
        sa.PrimaryKeyConstraint("id", name="pk_trials"),
        sa.UniqueConstraint("sweep_id", "number", name="uq_trials_sweep_id_number"),
    )
    op.create_index("ix_trials_finished_at", "trials", ["finished_at"])
    op.create_index(
        "ix_trials_overview",
        "trials",
        ["sweep_id", "state", "started_at", "finished_at", "world_size", "busy_s", "num_busy", "repeats", "gate_hours"],
    )
    op.create_table(
        "measurements",
        sa.Column("trial_id", sa.String(), nullable=False),
        sa.Column("sweep_id", sa.String(), nullable=False),
        sa.Column("mfu", sa.Double(), nullable=False),
        sa.Column("step_time_s", sa.Double(), nullable=False),
        sa.Column("tokens_per_s", sa.Double(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("is_ranked", sa.Boolean(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("step_time_interval_s", sa.Double(), nullable=True),
        sa.Column("noise_floor", sa.Double(), nullable=True),
        sa.Column("estimate", sa.Text(), nullable=True),
        sa.Column("timeline", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_measurements_sweep_id_sweeps"),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name="fk_measurements_trial_id_trials"),
        sa.PrimaryKeyConstraint("trial_id", name="pk_measurements"),
    )
    op.create_index("ix_measurements_ranking", "measurements", ["is_ranked", sa.literal_column("mfu DESC"), "trial_id"])
    op.create_index(
        "ix_measurements_sweep_ranking",
        "measurements",
        ["sweep_id", "is_ranked", sa.literal_column("value DESC"), "trial_id"],
    )
    op.create_table(
        "steps",
        sa.Column("trial_id", sa.String(), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name="fk_steps_trial_id_trials"),
        sa.PrimaryKeyConstraint("trial_id", "step", name="pk_steps"),
    )


def downgrade() -> None:
    for table in (
        "steps",
        "measurements",
        "trials",
        "comments",
        "sessions",
        "study_trials",
        "events",
        "workers",
        "webhooks",
        "tokens",
        "sweeps",
        "retunes",
        "runs",
        "descriptions",
        "baselines",
        "audit",
        "announcements",
    ):
        op.drop_table(table)
