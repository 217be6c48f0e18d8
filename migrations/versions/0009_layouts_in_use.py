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

_DEFAULTS = {
    # of models
    "gated_mlp": True,
    "tied_embeddings": False,
    "norm": "rmsnorm",
    "num_norms_per_layer": 2,
    "parallel_blocks": False,
    "embedding_norm": False,
    "attention_bias": "none",
    "attention_output_gate": False,
    "attention_sinks": False,
    "mlp_bias": False,
    "output_bias": False,
    "num_learned_positions": 0,
    "qk_norm": False,
    "qk_norm_of_all_heads": False,
    "attention_window": 0,
    "num_windowed_layers": 0,
    "experts": None,
    "latent_attention": None,
    "linear_attention": None,
    "num_linear_layers": 0,
    "approximations": [],
    # of their attention and experts
    "query_rank": None,
    "indexer_heads": 0,
    "indexer_head_dim": 0,
    "convolution_width": 4,
    "gate_rank": 0,
    "num_shared_experts": 0,
    "shared_expert_ffn_size": 0,
    "shared_expert_gate": False,
    "num_dense_layers": 0,
    "sparse_layer_interval": 1,
    "router_bias": False,
    "expert_bias": False,
    "capacity_factor": None,
    "pads_to_capacity": False,
    # of workloads and trainers
    "optimizer_state_precision": "fp32",
    "stack": "torch",
    "options": [],
    "fixed": {},
    "values": {},
}
"""What jobs were at by default when this revision was written: left out of the keys, as the store does."""

_OVERVIEW = ("sweep_id", "state", "started_at", "finished_at", "world_size", "busy_s", "num_busy")


def upgrade() -> None:
    op.add_column("trials", sa.Column("repeats", sa.Integer(), nullable=True))
    op.create_index("ix_trials_finished_at", "trials", ["finished_at"])
    op.drop_index("ix_trials_overview", "trials")
    op.create_index("ix_trials_overview", "trials", [*_OVERVIEW, "repeats"])
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
    job, few = request["job"], request.get("trial_cluster")
    model = {name: value for name, value in _without_defaults(job["model"]).items() if name != "name"}
    stack = (job.get("stack") or {}).get("name", "torch")
    hardware = [_hardware(job["cluster"]), None if few is None else _hardware(few)]
    about = [model, _without_defaults(job["workload"]), *hardware, _without_defaults(request.get("trainer")), stack]
    key = hashlib.sha256(json.dumps(about, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return {"accelerator": (few or job["cluster"])["accelerator"]["name"], "stack": stack, "job_key": key}


def _without_defaults(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        name: _without_defaults(item)
        for name, item in value.items()
        if name not in _DEFAULTS or item != _DEFAULTS[name]
    }


def _hardware(cluster: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": cluster["name"],
        "accelerator": cluster["accelerator"]["name"],
        "num_nodes": cluster["num_nodes"],
        "accelerators_per_node": cluster["accelerators_per_node"],
        "intra_node_link": cluster["intra_node_link"]["name"],
        "inter_node_link": cluster["inter_node_link"]["name"],
        "engine": cluster.get("engine", "local"),
        "queue": cluster.get("queue", ""),
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
        plain = json.dumps(_older(json.loads(text)), allow_nan=False, separators=(",", ":"))
        connection.execute(sa.update(_sweeps).where(_sweeps.c.id == sweep_id).values(request=plain))
    op.execute("UPDATE sweeps SET stop_reason = 'nothing_to_gain' WHERE stop_reason = 'compared'")
    for table in (*("deliveries", "webhooks", "announcements", "baselines", "mfu_gates", "retune_runs", "retunes"),):
        op.drop_table(table)
    op.drop_index("ix_sweeps_job_key_created_at_id", "sweeps")
    op.drop_index("ix_sweeps_accelerator_created_at_id", "sweeps")
    for name in ("job_key", "stack", "accelerator"):
        op.drop_column("sweeps", name)
    op.drop_index("ix_trials_finished_at", "trials")
    op.drop_index("ix_trials_overview", "trials")
    op.create_index("ix_trials_overview", "trials", [*_OVERVIEW])
    op.drop_column("trials", "repeats")


def _older(request: dict[str, Any]) -> dict[str, Any]:
    calibration = request["job"].get("calibration") or {}
    for name in ("num_trials", "num_sweeps", "parts", "correlations", "interval_scale"):
        calibration.pop(name, None)  # what is left is the factor of the whole step, which is all that there was
    if request.get("challenge") is None:
        for name in ("challenge", "uses_history"):
            request.pop(name, None)
    return request
