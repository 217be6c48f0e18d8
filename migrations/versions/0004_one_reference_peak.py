"""One reference peak per sweep behind every stored MFU; columns that lists and rankings read; loss gates."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_DEGREES = (
    "data_parallel_replicate_degree",
    "data_parallel_shard_degree",
    "tensor_parallel_degree",
    "context_parallel_degree",
    "pipeline_parallel_degree",
)


_NEW_IN_REQUESTS = ("objective", "max_parallel_trials", "loss_gate")


def _table(name: str, /, **columns: sa.types.TypeEngine[Any]) -> sa.TableClause:
    return sa.table(name, *(sa.column(column, kind) for column, kind in columns.items()))


_TEXT = sa.Text()
_NUMBER: sa.Double[float] = sa.Double()

_sweeps = _table("sweeps", id=_TEXT, request=_TEXT, name=_TEXT, model_name=_TEXT, cluster_name=_TEXT, budget=_TEXT)
_trials = _table(
    "trials", id=_TEXT, sweep_id=_TEXT, number=sa.Integer(), layout=_TEXT, prediction=_TEXT, world_size=sa.Integer()
)
_measurements = _table(
    "measurements",
    trial_id=_TEXT,
    mfu=_NUMBER,
    document=_TEXT,
    is_ranked=sa.Boolean(),
    value=_NUMBER,
    step_time_interval_s=_NUMBER,
    noise_floor=_NUMBER,
)
_steps = _table("steps", trial_id=_TEXT, step=sa.Integer(), document=_TEXT)
_events = _table("events", sweep_id=_TEXT, sequence=sa.Integer(), kind=_TEXT, data=sa.JSON())


def upgrade() -> None:
    for column in ("name", "model_name", "cluster_name"):
        op.add_column("sweeps", sa.Column(column, sa.String(), server_default=sa.text("''"), nullable=False))
    op.add_column("sweeps", sa.Column("metric", sa.String(32), server_default="mfu", nullable=False))
    op.add_column("sweeps", sa.Column("budget", sa.Text(), server_default="{}", nullable=False))
    op.add_column("trials", sa.Column("world_size", sa.Integer(), server_default="0", nullable=False))
    op.add_column("trials", sa.Column("stopped", sa.Text()))
    op.add_column("measurements", sa.Column("is_ranked", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("measurements", sa.Column("value", sa.Double(), server_default="0", nullable=False))
    op.add_column("measurements", sa.Column("step_time_interval_s", sa.Double()))
    op.add_column("measurements", sa.Column("noise_floor", sa.Double()))
    op.create_table(
        "gates",
        sa.Column("trial_id", sa.String(), nullable=False),
        sa.Column("sweep_id", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(32), nullable=False),
        sa.Column("accelerator_hours", sa.Double(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("trial_id", name="pk_gates"),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name="fk_gates_trial_id_trials"),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_gates_sweep_id_sweeps"),
    )
    _drop_rankings()
    for sweep in _stored_sweeps():
        _fill_columns(sweep)
        _refer_to_one_peak(sweep)
    op.create_index("ix_measurements_ranking", "measurements", ["is_ranked", sa.text("mfu DESC"), "trial_id"])
    op.create_index(
        "ix_measurements_sweep_ranking", "measurements", ["sweep_id", "is_ranked", sa.text("value DESC"), "trial_id"]
    )
    op.create_index("ix_gates_sweep_id_accelerator_hours", "gates", ["sweep_id", "accelerator_hours"])
    op.create_index("ix_trials_overview", "trials", ["sweep_id", "state", "started_at", "finished_at", "world_size"])


def downgrade() -> None:
    # What the older release cannot read is dropped: objectives, loss gates, why trials were stopped. Where each trial
    # had measured its own peak, MFU stays what it is: nothing stored says any more what that peak was.
    op.drop_index("ix_trials_overview", "trials")
    op.drop_table("gates")
    _drop_rankings()
    for sweep in _stored_sweeps():
        _forget_request(sweep)
        _refer_to_precisions(sweep)
    for table, columns in (
        ("measurements", ("is_ranked", "value", "step_time_interval_s", "noise_floor")),
        ("trials", ("world_size", "stopped")),
        ("sweeps", ("name", "model_name", "cluster_name", "metric", "budget")),
    ):
        for column in columns:
            op.drop_column(table, column)
    op.create_index("ix_measurements_ranking", "measurements", [sa.text("mfu DESC"), "trial_id"])
    op.create_index("ix_measurements_sweep_ranking", "measurements", ["sweep_id", sa.text("mfu DESC"), "trial_id"])


def _drop_rankings() -> None:
    op.drop_index("ix_measurements_ranking", "measurements")
    op.drop_index("ix_measurements_sweep_ranking", "measurements")


# ---------------------------------------------------------------------- what is stored, as documents
class _Trial(NamedTuple):
    id: str
    layout: dict[str, Any]
    prediction: dict[str, Any]
    measurement: dict[str, Any] | None

    @property
    def world_size(self) -> int:
        return math.prod(self.layout[degree] for degree in _DEGREES)


class _Sweep(NamedTuple):
    id: str
    request: dict[str, Any]
    trials: list[_Trial]

    @property
    def accelerator(self) -> dict[str, Any]:
        found: dict[str, Any] = self.request["job"]["cluster"]["accelerator"]
        return found

    @property
    def knows_peaks(self) -> bool:
        """The accelerator's peaks were the denominators of its trials; otherwise each trial measured its own."""
        return bool(self.accelerator["kind"] != "cpu" or self.accelerator.get("peak_is_measured"))

    @property
    def stated_reference(self) -> float:
        """Of one rank: what predictions refer to, and trials where the peaks are known."""
        fp32, bf16 = self.accelerator["fp32_flop_per_s"], self.accelerator["bf16_flop_per_s"]
        return float(fp32 if self.accelerator["kind"] == "cpu" or not bf16 else bf16)

    @property
    def measured_reference(self) -> float | None:
        """Of one rank: what measurements refer to; where each trial measured its own peak, the first one's."""
        if self.knows_peaks:
            return self.stated_reference
        found = [(trial, trial.measurement) for trial in self.trials if trial.measurement]
        return found[0][1]["peak_flop_per_s"] / found[0][0].world_size if found else None

    def precision_peak(self, trial: _Trial) -> float:
        """Of one rank, as the accelerator states it; emulated fp8 is multiplied in bf16."""
        precision = trial.layout["precision"].replace("fp8_emulated", "bf16")
        return float(self.accelerator[f"{precision}_flop_per_s"]) or self.stated_reference


def _stored_sweeps() -> Iterator[_Sweep]:
    connection = op.get_bind()
    documents = sa.select(_measurements.c.trial_id, _measurements.c.document).subquery()
    for sweep_id, request in connection.execute(sa.select(_sweeps.c.id, _sweeps.c.request)).all():
        query = (
            sa.select(_trials.c.id, _trials.c.layout, _trials.c.prediction, documents.c.document)
            .select_from(_trials.outerjoin(documents, documents.c.trial_id == _trials.c.id))
            .where(_trials.c.sweep_id == sweep_id)
            .order_by(_trials.c.number)
        )
        trials = [
            _Trial(row.id, json.loads(row.layout), json.loads(row.prediction), json.loads(row.document or "null"))
            for row in connection.execute(query).all()
        ]
        yield _Sweep(sweep_id, json.loads(request), trials)


# ---------------------------------------------------------------------- columns of what documents say
def _fill_columns(sweep: _Sweep) -> None:
    job = sweep.request["job"]
    _update(
        _sweeps,
        _sweeps.c.id == sweep.id,
        name=_plain(sweep.request.get("name", "")),
        model_name=_plain(job["model"]["name"]),
        cluster_name=_plain(job["cluster"]["name"]),
        budget=_dumped({"schema_version": 1, **sweep.request.get("budget", {})}),
    )
    for trial in sweep.trials:
        _update(_trials, _trials.c.id == trial.id, world_size=trial.world_size)
        if trial.measurement:
            _update(
                _measurements,
                _measurements.c.trial_id == trial.id,
                is_ranked=trial.layout["precision"] != "fp8_emulated",
                step_time_interval_s=_step_time_error_s(trial.measurement),
                noise_floor=trial.measurement.get("noise_floor"),
            )


def _forget_request(sweep: _Sweep) -> None:
    kept = {name: part for name, part in sweep.request.items() if name not in _NEW_IN_REQUESTS}
    if kept != sweep.request:
        _update(_sweeps, _sweeps.c.id == sweep.id, request=_dumped(kept))


# ---------------------------------------------------------------------- shares of another peak
def _refer_to_one_peak(sweep: _Sweep) -> None:
    """MFU and HFU become shares of the sweep's reference; the peak that they were shares of is kept beside them."""
    factors = {}
    for trial in sweep.trials:
        stated = sweep.precision_peak(trial) / sweep.stated_reference
        trial.prediction["precision_utilization"] = trial.prediction["mfu"]
        _save_prediction(trial, stated)
        factors[trial.id] = stated if sweep.knows_peaks else 1.0
        if trial.measurement and sweep.measured_reference:
            old, new = trial.measurement["peak_flop_per_s"], sweep.measured_reference * trial.world_size
            factors[trial.id] = old / new
            trial.measurement.update(
                {"peak_flop_per_s": new, "precision_flop_per_s": old if sweep.knows_peaks else None}
            )
            _save_measurement(trial, old / new)
    _scale_reports(sweep, factors)


def _refer_to_precisions(sweep: _Sweep) -> None:
    """MFU and HFU become shares of the peak of each layout's precision, where that is stored."""
    factors = {}
    for trial in sweep.trials:
        stated = sweep.stated_reference / sweep.precision_peak(trial)
        trial.prediction.pop("precision_utilization", None)
        _save_prediction(trial, stated)
        factors[trial.id] = stated if sweep.knows_peaks else 1.0
        if trial.measurement:
            old = trial.measurement["peak_flop_per_s"]
            new = trial.measurement.pop("precision_flop_per_s", None) or old
            factors[trial.id] = old / new
            trial.measurement["peak_flop_per_s"] = new
            _save_measurement(trial, old / new)
    _scale_reports(sweep, factors)


def _save_prediction(trial: _Trial, factor: float) -> None:
    _update(_trials, _trials.c.id == trial.id, prediction=_dumped(_scaled(trial.prediction, factor, "mfu", "hfu")))


def _save_measurement(trial: _Trial, factor: float) -> None:
    assert trial.measurement
    document = _scaled(trial.measurement, factor, "mfu", "hfu")
    values = {"mfu": document["mfu"], "value": document["mfu"], "document": _dumped(document)}
    _update(_measurements, _measurements.c.trial_id == trial.id, **values)


def _scale_reports(sweep: _Sweep, factors: dict[str, float]) -> None:
    """What steps and events say of MFU, where it changes."""
    changed = {trial_id: factor for trial_id, factor in factors.items() if factor != 1.0}
    connection = op.get_bind()
    for trial_id, factor in changed.items():
        for step in connection.execute(sa.select(_steps).where(_steps.c.trial_id == trial_id)).all():
            document = _scaled(json.loads(step.document), factor, "mfu")
            _update(_steps, (_steps.c.trial_id == trial_id) & (_steps.c.step == step.step), document=_dumped(document))
    mine = (_events.c.sweep_id == sweep.id) & _events.c.kind.in_(("trial.step", "trial.finished"))
    for event in connection.execute(sa.select(_events).where(mine)).all() if changed else ():
        data = _scaled(event.data, changed.get(event.data["trial_id"], 1.0), "mfu")
        _update(_events, (_events.c.sweep_id == sweep.id) & (_events.c.sequence == event.sequence), data=data)


def _scaled(document: dict[str, Any], factor: float, *fields: str) -> dict[str, Any]:
    return document | {field: document[field] * factor for field in fields if document.get(field) is not None}


# ---------------------------------------------------------------------- rows
def _update(table: sa.TableClause, row: sa.ColumnElement[bool], **values: object) -> None:
    op.get_bind().execute(sa.update(table).where(row).values(values))


def _dumped(document: dict[str, Any]) -> str:
    return json.dumps(document, allow_nan=False, separators=(",", ":"))


def _plain(text: str) -> str:
    """What PostgreSQL cannot hold is escaped, as the store escapes it."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def _step_time_error_s(measurement: dict[str, Any]) -> float:
    """Half the 95 % interval of the median; from the distance of the quartiles where it was not measured."""
    known = measurement.get("step_time_interval_s")
    if known is not None:
        return float(known)
    spread_s, num_steps = float(measurement["step_time_spread_s"]), int(measurement["num_steps"])
    return 1.96 * 1.253 * spread_s / 1.349 / math.sqrt(max(1, num_steps))
