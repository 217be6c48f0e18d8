"""The computation of a predicted step is stored in four parts; what was one number becomes the first of them."""

from __future__ import annotations

import json
from collections.abc import Callable

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_trials = sa.table("trials", sa.column("id", sa.String()), sa.column("prediction", sa.Text()))


def upgrade() -> None:
    _rewrite(lambda parts: {"matrix_s": parts.pop("compute_s"), "attention_s": 0.0, "pointwise_s": 0.0, "host_s": 0.0})


def downgrade() -> None:
    names = ("matrix_s", "attention_s", "pointwise_s", "host_s")
    _rewrite(lambda parts: {"compute_s": sum(parts.pop(name) for name in names)})


def _rewrite(change: Callable[[dict[str, float]], dict[str, float]]) -> None:
    """Replace in every stored step time what ``change`` takes out of it by what it returns."""
    connection = op.get_bind()
    for trial_id, text in connection.execute(sa.select(_trials.c.id, _trials.c.prediction)).all():
        document = json.loads(text)
        document["step_time"] |= change(document["step_time"])
        changed = json.dumps(document, allow_nan=False, separators=(",", ":"))
        connection.execute(sa.update(_trials).where(_trials.c.id == trial_id).values(prediction=changed))
