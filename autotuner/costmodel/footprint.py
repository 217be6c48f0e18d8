"""What layouts take beside time, in columns: power, price, CO2, complexity and robustness; and what a step is worth.

An accelerator draws idle + (most - idle) x the share of the step in which it computes: the linear model of Fan, Weber,
Barroso, "Power provisioning for a warehouse-sized computer" (2007), with the ends that data sheets and idle devices
tell. While it waits for others, for the host or for a link it draws what an idle device does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import cast

import numpy as np

from autotuner.core.accelerator import Accelerator
from autotuner.core.cluster import Cluster
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.complexity import complexity
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Footprint, Measurement, Power
from autotuner.core.objective import Objective
from autotuner.core.prediction import Prediction, TrialEstimate
from autotuner.costmodel.predict import PredictionColumns
from autotuner.costmodel.step.step_time import StepTimeColumns
from autotuner.costmodel.traffic import TrafficColumns

IDLE_SHARE = 0.22
"""Of what it draws at most, what a device draws that holds a job and waits, where its description does not say. An
assumption: 155 W of 700 on an H100, 100 of 400 on an A100, 260 of 1,000 on a B200 (``bench/clocks.py``)."""

_COMPUTING = ("matrix_s", "attention_s", "pointwise_s", "recompute_s", "optimizer_s")
"""Parts of a step in which an accelerator computes; in all others it waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerColumns:
    """``Power`` of many layouts."""

    accelerators_w: Floats
    hosts_w: Floats
    network_w: Floats
    building_w: Floats

    @property
    def total_w(self) -> Floats:
        """The sum of all parts."""
        total_w: Floats = self.accelerators_w + self.hosts_w + self.network_w + self.building_w
        return total_w

    def row(self, index: int, *, is_measured: bool) -> Power:
        """Of one layout."""
        parts = {f.name: float(getattr(self, f.name)[index]) for f in fields(self)}
        return Power(is_measured=is_measured, **parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class FootprintColumns:
    """``Footprint`` of many layouts; formulas of one footprint hold for it.

    Attributes:
        power: None where the accelerator's is not known.
        robustness: None without a fault trace.
    """

    power: PowerColumns | None
    price_per_hour: Floats
    co2_kg_per_hour: Floats
    complexity: Floats
    robustness: Floats | None = None

    def __len__(self) -> int:
        return len(self.complexity)

    def row(self, index: int, *, is_measured: bool = False) -> Footprint:
        """Of one layout."""
        return Footprint(
            power=None if self.power is None else self.power.row(index, is_measured=is_measured),
            price_per_hour=float(self.price_per_hour[index]),
            co2_kg_per_hour=float(self.co2_kg_per_hour[index]),
            complexity=float(self.complexity[index]),
            robustness=None if self.robustness is None else float(self.robustness[index]),
        )


def predicted_footprints(x: LayoutColumns, job: Job, predictions: PredictionColumns) -> FootprintColumns:
    """What every row takes beside time, by its prediction."""
    step_s, robust_s = predictions.step_time.total_s, predictions.robust_step_s
    drawn_w = _accelerators_w(job.cluster, _busy_share(predictions.step_time))
    return _footprints(x, job, drawn_w, step_s, None if robust_s is None else step_s / robust_s)


def footprint_of(
    layout: Layout,
    job: Job,
    prediction: Prediction,
    reached: Measurement | TrialEstimate | None = None,
    power_w: float | None = None,
) -> Footprint:
    """What one layout takes beside time.

    Args:
        layout: A legal one.
        job: Whose layout it is.
        prediction: Of the layout, for the job; it says how busy the accelerators are.
        reached: What a trial reached; its step time and robustness count before the predicted ones. None: nothing ran.
        power_w: Measured mean draw of one accelerator; None: modelled.
    """
    cluster = job.cluster
    parts = {f.name: np.array([getattr(prediction.step_time, f.name)]) for f in fields(StepTimeColumns)}
    modelled_w = _accelerators_w(cluster, _busy_share(StepTimeColumns(**parts)))
    drawn_w = modelled_w if power_w is None else np.array([power_w * cluster.world_size])
    robustness = _robustness(prediction, reached)
    step_s = np.array([prediction.step_time.total_s if reached is None else reached.step_time_s])
    columns = LayoutColumns.from_layouts([layout])
    found = _footprints(columns, job, drawn_w, step_s, None if robustness is None else np.array([robustness]))
    return found.row(0, is_measured=power_w is not None)


def worth_per_step(objective: Objective, job: Job, footprints: FootprintColumns | None, num_rows: int) -> Floats:
    """What a step of every row is worth: divided by step times in seconds they are the values of the layouts.

    Args:
        objective: What layouts are compared by.
        job: Whose layouts they are.
        footprints: Of every row; may be None where the objective reads none.
        num_rows: Layouts.
    """
    worth = objective.worth_per_step(job, cast("Footprint", footprints))  # its formulas hold for columns
    return np.array(np.broadcast_to(worth, (num_rows,)), dtype=np.float64)


def _busy_share(step_time: StepTimeColumns) -> Floats:
    """Share of the step in which the slowest rank computes; it stands for all."""
    parts: Sequence[Floats] = [getattr(step_time, name) for name in _COMPUTING]
    share: Floats = np.sum(parts, axis=0) / step_time.total_s
    return share


def _accelerators_w(cluster: Cluster, busy_share: Floats) -> Floats | None:
    """Draw of all accelerators; None where it is not known what one draws at most."""
    accelerator = cluster.accelerator
    if not accelerator.power_w:
        return None
    idle_w = _idle_w(accelerator)
    return cluster.world_size * (idle_w + (accelerator.power_w - idle_w) * busy_share)


def _idle_w(accelerator: Accelerator) -> float:
    return IDLE_SHARE * accelerator.power_w if accelerator.idle_power_w is None else accelerator.idle_power_w


def _footprints(
    x: LayoutColumns, job: Job, drawn_w: Floats | None, step_s: Floats, robustness: Floats | None
) -> FootprintColumns:
    """All of it from what the accelerators draw, and how long steps take that send their bytes."""
    tariff, nothing = job.cluster.tariff, np.zeros(len(x))
    power = None if drawn_w is None else _power(job.cluster, drawn_w, _network_w(x, job, step_s))
    total_kw = nothing if power is None else power.total_w / 1000
    return FootprintColumns(
        power=power,
        price_per_hour=_price_per_hour(job.cluster, total_kw),
        co2_kg_per_hour=tariff.co2_kg_per_kwh * total_kw,
        complexity=nothing + complexity(cast("Layout", x)),
        robustness=robustness,
    )


def _network_w(x: LayoutColumns, job: Job, step_s: Floats) -> Floats:
    """Of ports and switches, for what leaves nodes."""
    j_per_byte = job.cluster.tariff.network_j_per_byte
    if not j_per_byte:
        return np.zeros(len(x))
    drawn_w: Floats = j_per_byte * TrafficColumns.of(x, job).total_bytes / step_s
    return drawn_w


def _power(cluster: Cluster, drawn_w: Floats, network_w: Floats) -> PowerColumns:
    tariff, nothing = cluster.tariff, np.zeros(len(drawn_w))
    hosts_w = nothing + tariff.host_power_w * cluster.world_size
    return PowerColumns(
        accelerators_w=drawn_w,
        hosts_w=hosts_w,
        network_w=network_w,
        building_w=(tariff.power_usage_effectiveness - 1) * (drawn_w + hosts_w + network_w),
    )


def _price_per_hour(cluster: Cluster, total_kw: Floats) -> Floats:
    """US dollars of an hour that counts: of spot hours some are lost, and paid."""
    tariff = cluster.tariff
    hourly = tariff.spot_price_per_accelerator_hour if tariff.is_spot else cluster.price_per_accelerator_hour
    paid: Floats = cluster.world_size * hourly + tariff.energy_price_per_kwh * total_kw
    return paid / (1 - tariff.interrupted_share) if tariff.is_spot else paid


def _robustness(prediction: Prediction, reached: Measurement | TrialEstimate | None) -> float | None:
    """Throughput under the fault trace over that of healthy steps: measured, else predicted."""
    if isinstance(reached, Measurement) and reached.robust is not None:
        return reached.step_time_s / reached.robust.step_time_s
    if prediction.robust_step_s is None:
        return None
    return prediction.step_time.total_s / prediction.robust_step_s
