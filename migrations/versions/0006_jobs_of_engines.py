"""Trials keep the jobs that engines were given for them, and clusters name the engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_HOURS = ["sweep_id", "state", "started_at", "finished_at", "world_size"]

_sweeps = sa.table("sweeps", sa.column("id", sa.Text()), sa.column("request", sa.Text()))
_clusters = sa.table("clusters", sa.column("name", sa.Text()), sa.column("document", sa.Text()))
_measurements = sa.table("measurements", sa.column("trial_id", sa.Text()), sa.column("document", sa.Text()))
_failures = sa.table(
    "failures", sa.column("trial_id", sa.Text()), sa.column("kind", sa.Text()), sa.column("document", sa.Text())
)


def upgrade() -> None:
    op.add_column("sweeps", sa.Column("engine", sa.String(), server_default=sa.text("'local'"), nullable=False))
    op.add_column("trials", sa.Column("jobs", sa.Text(), server_default=sa.text("'[]'"), nullable=False))
    op.add_column("trials", sa.Column("busy_s", sa.Double(), nullable=True))
    op.add_column("trials", sa.Column("num_busy", sa.Integer(), server_default=sa.text("'0'"), nullable=False))
    op.drop_index("ix_trials_overview", "trials")
    op.create_index("ix_trials_overview", "trials", [*_HOURS, "busy_s", "num_busy"])


def downgrade() -> None:
    # The older release knows neither engines nor failures of theirs: its trials run on its own machine.
    _rewrite(_sweeps, _sweeps.c.id, _sweeps.c.request, lambda request: _run_here(request["job"]["cluster"]))
    _rewrite(_clusters, _clusters.c.name, _clusters.c.document, _run_here)
    _rewrite(_measurements, _measurements.c.trial_id, _measurements.c.document, _unmarked)
    _rewrite(_failures, _failures.c.trial_id, _failures.c.document, _interrupted)
    op.execute(sa.update(_failures).where(_failures.c.kind == "infrastructure").values(kind="interrupted"))
    op.drop_index("ix_trials_overview", "trials")
    op.create_index("ix_trials_overview", "trials", _HOURS)
    for name in ("num_busy", "busy_s", "jobs"):
        op.drop_column("trials", name)
    op.drop_column("sweeps", "engine")


def _rewrite(
    table: sa.TableClause,
    key: sa.ColumnElement[str],
    document: sa.ColumnElement[str],
    rewrite: Callable[[dict[str, Any]], None],
) -> None:
    connection = op.get_bind()
    for row_key, text in connection.execute(sa.select(key, document)).all():
        found = json.loads(text)
        rewrite(found)
        rewritten = json.dumps(found, allow_nan=False, separators=(",", ":"))
        if rewritten != text:
            connection.execute(sa.update(table).where(key == row_key).values({document: rewritten}))


def _run_here(cluster: dict[str, Any]) -> None:
    for name in ("engine", "queue"):
        cluster.pop(name, None)


def _unmarked(measurement: dict[str, Any]) -> None:
    measurement.pop("is_simulated", None)  # what was simulated still says so as the source of its peak


def _interrupted(failure: dict[str, Any]) -> None:
    if failure.get("kind") == "infrastructure":
        failure["kind"] = "interrupted"
