"""Retunes, MFU gates and announcements; repeated trials; what history is found by."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_sweeps = sa.table(
    "sweeps",
    *(sa.column(name, sa.Text()) for name in ("id", "request", "accelerator", "stack", "job_key")),
)


def upgrade() -> None:
    op.add_column("trials", sa.Column("repeats", sa.Integer(), nullable=True))
    op.create_index("ix_trials_finished_at", "trials", ["finished_at"])
    for name in ("accelerator", "stack", "job_key"):
        op.add_column("sweeps", sa.Column(name, sa.String(), server_default=sa.text("''"), nullable=False))
    _fill_history()
    op.create_index("ix_sweeps_accelerator_created_at_id", "sweeps", ["accelerator", "created_at", "id"])
    op.create_index("ix_sweeps_job_key_created_at_id", "sweeps", ["job_key", "created_at", "id"])
    _create_retunes()
    _create_mfu_gates()
    _create_announcements()


def _fill_history() -> None:
    connection = op.get_bind()
    for sweep_id, text in connection.execute(sa.select(_sweeps.c.id, _sweeps.c.request)).all():
        connection.execute(sa.update(_sweeps).where(_sweeps.c.id == sweep_id).values(_facts(json.loads(text))))


def _facts(request: dict[str, Any]) -> dict[str, str]:
    # Of a request that an older release wrote without a field that jobs have today the key is not today's of that job.
    job, few = request["job"], request.get("trial_cluster")
    for cluster in (job["cluster"], few or {}):
        if cluster.get("accelerator", {}).get("peak_is_measured"):
            cluster["accelerator"] |= {"fp32_flop_per_s": 1.0, "bf16_flop_per_s": 1.0}
    about = [job["model"], job["cluster"], job["workload"], job.get("stack"), request.get("trainer"), few]
    key = hashlib.sha256(json.dumps(about, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return {
        "accelerator": (few or job["cluster"])["accelerator"]["name"],
        "stack": (job.get("stack") or {}).get("name", "torch"),
        "job_key": key,
    }


def _create_retunes() -> None:
    op.create_table(
        "retunes",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("is_paused", sa.Boolean(), nullable=False),
        sa.Column("incumbent", sa.Text()),
        sa.Column("baseline", sa.Text(), nullable=False),
        sa.Column("next_due_at", sa.Double()),
        sa.PrimaryKeyConstraint("name", name="pk_retunes"),
    )
    op.create_index("ix_retunes_next_due_at", "retunes", ["next_due_at"])
    op.create_table(
        "retune_runs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("retune", sa.String(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.Column("trigger", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double()),
        sa.Column("sweep_id", sa.String()),
        sa.Column("num_missed", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.String(length=32)),
        sa.Column("outcome", sa.Text()),
        sa.ForeignKeyConstraint(["retune"], ["retunes.name"], name="fk_retune_runs_retune_retunes"),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_retune_runs_sweep_id_sweeps"),
        sa.PrimaryKeyConstraint("id", name="pk_retune_runs"),
        sa.UniqueConstraint("retune", "due_at", name="uq_retune_runs_retune_due_at"),
    )
    op.create_index("ix_retune_runs_state_started_at", "retune_runs", ["state", "started_at"])
    op.create_index("ix_retune_runs_sweep_id", "retune_runs", ["sweep_id"])


def _create_mfu_gates() -> None:
    op.create_table(
        "mfu_gates",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("content", sa.String(), nullable=False),
        sa.Column("baseline_name", sa.String(), nullable=False),
        sa.Column("baseline", sa.Text()),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("sweep_id", sa.String()),
        sa.Column("finished_at", sa.Double()),
        sa.Column("outcome", sa.String(length=32)),
        sa.Column("is_reusable", sa.Boolean(), nullable=False),
        sa.Column("result", sa.Text()),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_mfu_gates_sweep_id_sweeps"),
        sa.PrimaryKeyConstraint("id", name="pk_mfu_gates"),
    )
    for columns in (
        ["created_at", "id"],
        ["baseline_name", "created_at", "id"],
        ["content", "is_reusable", "created_at", "id"],
        ["finished_at", "created_at"],
        ["sweep_id"],
    ):
        op.create_index(f"ix_mfu_gates_{'_'.join(columns)}", "mfu_gates", columns)
    op.create_table(
        "baselines",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", "key", name="pk_baselines"),
    )


def _create_announcements() -> None:
    op.create_table(
        "announcements",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("subject_id", sa.String(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_announcements"),
    )
    op.create_index("ix_announcements_at_id", "announcements", ["at", "id"])
    op.create_table(
        "webhooks",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("secret", sa.String(), nullable=False),
        sa.Column("kinds", sa.Text(), nullable=False),
        sa.Column("format", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_webhooks"),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("webhook", sa.String(), nullable=False),
        sa.Column("announcement_id", sa.String(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("next_attempt_at", sa.Double()),
        sa.Column("ended_at", sa.Double()),
        sa.Column("detail", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["webhook"], ["webhooks.name"], name="fk_deliveries_webhook_webhooks"),
        sa.ForeignKeyConstraint(
            ["announcement_id"], ["announcements.id"], name="fk_deliveries_announcement_id_announcements"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_deliveries"),
        sa.UniqueConstraint("announcement_id", "webhook", name="uq_deliveries_announcement_id_webhook"),
    )
    for columns in (["created_at", "id"], ["webhook", "created_at", "id"], ["state", "next_attempt_at", "id"]):
        op.create_index(f"ix_deliveries_{'_'.join(columns)}", "deliveries", columns)


def downgrade() -> None:
    # The older release would rank repeated trials: such sweeps keep fields that it does not know, so that it says that
    # it cannot read them, and others lose these.
    connection = op.get_bind()
    for sweep_id, text in connection.execute(sa.select(_sweeps.c.id, _sweeps.c.request)).all():
        request = json.loads(text)
        if request.get("challenge") is None:
            for name in ("challenge", "uses_history"):
                request.pop(name, None)
            plain = json.dumps(request, allow_nan=False, separators=(",", ":"))
            connection.execute(sa.update(_sweeps).where(_sweeps.c.id == sweep_id).values(request=plain))
    for table in (*("deliveries", "webhooks", "announcements", "baselines", "mfu_gates", "retune_runs", "retunes"),):
        op.drop_table(table)
    op.drop_index("ix_sweeps_job_key_created_at_id", "sweeps")
    op.drop_index("ix_sweeps_accelerator_created_at_id", "sweeps")
    for name in ("job_key", "stack", "accelerator"):
        op.drop_column("sweeps", name)
    op.drop_index("ix_trials_finished_at", "trials")
    op.drop_column("trials", "repeats")
