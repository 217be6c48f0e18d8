"""Resource cost of a step: bytes that leave nodes, power, energy, price and CO2.

Collectives are counted as rings, in which every edge carries each byte once per pass. An algorithm that moves the same
bytes in another order loads the ports by as much on average. Bytes that stay inside a node are not counted.

An accelerator draws idle + (most - idle) x the share of the step in which it computes: the linear model of Fan, Weber,
Barroso, "Power provisioning for a warehouse-sized computer" (2007), whose two ends come from data sheets and from idle
devices. While an accelerator waits for others, for the host or for a link, it draws the idle power.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import reduce
from operator import add
from typing import cast

import numpy as np

from autotuner.core import stages
from autotuner.core.accelerator import Accelerator
from autotuner.core.choices import (
    CollectiveHierarchy,
    ContextExchange,
    GradientSync,
    PipelineSchedule,
    Recompute,
    ShardLevel,
)
from autotuner.core.cluster import Cluster
from autotuner.core.columns import Floats, Integers, LayoutColumns, is_one_of
from autotuner.core.complexity import complexity
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement, Power, ResourceCost
from autotuner.core.objective import Objective
from autotuner.core.prediction import Prediction, StepTime, TrialEstimate
from autotuner.costmodel.communication.group import Group
from autotuner.costmodel.communication.layout_groups import (
    context_group,
    exchange_group,
    expert_group,
    expert_shard_group,
    pipeline_group,
    replicate_group,
    shard_group,
    tensor_group,
)
from autotuner.costmodel.memory.weights import gradient_bytes
from autotuner.costmodel.predict import PredictionColumns
from autotuner.costmodel.shared.low_precision import gathered_share
from autotuner.costmodel.shared.micro_batch import hidden_bytes, own_copies, tokens_per_pass
from autotuner.costmodel.shared.stages import num_micro_batches
from autotuner.costmodel.step.sends import sent_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficColumns:
    """The bytes that leave nodes in one step, by kind of parallelism, summed over all nodes; one row per layout."""

    data_bytes: Floats
    """Bytes of gradients that are summed, and of parameters that are gathered."""
    tensor_bytes: Floats
    """Bytes of sums of hidden states."""
    context_bytes: Floats
    """Bytes of keys, values and their gradients, or of heads."""
    expert_bytes: Floats
    """Bytes of tokens that are sent to experts and back."""
    pipeline_bytes: Floats
    """Bytes of hidden states and their gradients that are sent between stages."""

    @classmethod
    def of(cls, x: LayoutColumns, job: Job) -> TrafficColumns:
        """Return the bytes that leave nodes in one step, for each kind of parallelism, with one row per layout."""
        return cls(
            data_bytes=_data_bytes(x, job),
            tensor_bytes=_tensor_bytes(x, job),
            context_bytes=_context_bytes(x, job),
            expert_bytes=_expert_bytes(x, job),
            pipeline_bytes=_pipeline_bytes(x, job),
        )

    @property
    def total_bytes(self) -> Floats:
        """The bytes of a step that leave a node, summed over all nodes and all kinds of parallelism."""
        total: Floats = reduce(add, (getattr(self, f.name) for f in fields(self)))
        return total


# ---------------------------------------------------------------- of a byte that a collective works on
def _around(group: Group) -> Floats:
    """Return the number of times that a byte leaves a node while a ring gathers or scatters it: once per node."""
    around: Floats = group.num_nodes * (group.num_ranks - 1) / group.num_ranks
    return np.where(group.crosses_nodes, around, 0.0)


def _around_data(x: LayoutColumns, group: Group) -> Floats:
    """Return the number of times that a byte of data-parallel ranks leaves a node.

    A ring on two levels sends only each node's part between nodes.
    """
    two_level = x.collective_hierarchy == CollectiveHierarchy.TWO_LEVEL
    return np.where(two_level & group.crosses_nodes, group.num_nodes - 1.0, _around(group))


def _outside(group: Group) -> Floats:
    """Return the share of a rank's all-to-all bytes that goes to other nodes."""
    outside: Floats = (group.num_ranks - group.ranks_per_node) / group.num_ranks
    return np.where(group.crosses_nodes, outside, 0.0)


# ---------------------------------------------------------------- of each axis
def _data_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Return the bytes of data-parallel collectives that leave nodes: of dense weights, and of experts.

    Fewer ranks hold the same experts than the same dense weights.
    """
    experts = float(job.model.num_expert_parameters)
    dense_bytes = _exchanged_bytes(x, job, job.model.num_parameters - experts, shard_group(x, job.cluster))
    if not experts:
        return dense_bytes
    group, apart = expert_shard_group(x, job), x.expert_parallel_degree > 1
    together_bytes = _exchanged_bytes(x, job, experts, shard_group(x, job.cluster))
    return dense_bytes + np.where(apart, _exchanged_bytes(x, job, experts, group), together_bytes)


def _exchanged_bytes(x: LayoutColumns, job: Job, elements: float, shard: Group) -> Floats:
    """Return the bytes that leave nodes for this number of elements.

    Shards gather and scatter the elements, and replicas sum them.
    """
    gathers, reduces = _num_gathers_and_reduces(x, job)
    summed_bytes = elements * gradient_bytes(x, job)
    gathered_bytes = elements * x.element_bytes * gathered_share(x, job)
    sharded = (gathers * gathered_bytes + reduces * summed_bytes) * _around_data(x, shard)
    everywhere = np.where(x.shard_level == ShardLevel.NONE, 0.0, x.data_parallel_replicate_degree * sharded)
    replicate = replicate_group(x, job.cluster)
    full = 2 * reduces * summed_bytes * _around_data(x, replicate)
    if not x.gradient_sync.any():
        return everywhere + full
    return everywhere + np.where(x.gradient_sync == GradientSync.FULL, full, _lossy_bytes(x, job, elements))


def _lossy_bytes(x: LayoutColumns, job: Job, elements: float) -> Floats:
    """Return the bytes that leave nodes in a lossy exchange between replicas.

    If nothing is sharded, the context ranks of one replica sum their gradients first.
    """
    group, one = exchange_group(x, job.cluster), cast("Layout", x)
    edges = np.where(group.crosses_nodes, group.num_nodes, 0)
    sent: Floats = edges * stages.sent_bytes(one, elements, 4.0)
    apart = (x.shard_level == ShardLevel.NONE) & (x.context_parallel_degree > 1)
    summed = 2 * elements * gradient_bytes(x, job) * x.data_parallel_replicate_degree
    return sent + np.where(apart, summed * _around(context_group(x, job.cluster)), 0.0)


def _num_gathers_and_reduces(x: LayoutColumns, job: Job) -> tuple[Floats, Floats]:
    """Return how many times a step gathers all parameters, and how many times it reduces all gradients.

    ``step.data_parallel`` explains these numbers.
    """
    m, in_pipeline = num_micro_batches(x, job), x.pipeline_parallel_degree > 1
    by_parameters = x.shard_level == ShardLevel.PARAMETERS
    whole = np.where(in_pipeline, np.where(x.reshard_after_forward, m, 1), m * (1 + x.reshard_after_forward))
    gathers = np.where(by_parameters, whole, (x.shard_level > ShardLevel.NONE) * 1.0)
    often = (x.shard_level == ShardLevel.GRADIENTS) | (by_parameters & ~in_pipeline)
    return gathers, np.where(often, m, 1.0)


def _tensor_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Return the bytes that leave nodes for tensor collectives: two sums in each pass through a layer.

    The passes are forward, backward and recomputation.
    """
    group = tensor_group(x, job.cluster)
    passes = 2.0 + (x.recompute == Recompute.FULL) / x.recompute_every
    num_groups = job.cluster.world_size / group.num_ranks
    summed: Floats = _layer_visits(x, job) * num_groups * 2 * passes * hidden_bytes(x, job)
    return 2 * summed * _around(group)


def _context_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Return the bytes that leave nodes for context collectives.

    Context ranks send keys and values around a ring, in the backward pass with their gradients; or they gather them; or
    they exchange queries, keys, values and outputs for heads and back.
    """
    group, model = context_group(x, job.cluster), job.model
    tokens_bytes = x.element_bytes * tokens_per_pass(x, job) / x.tensor_parallel_degree
    block_bytes, others = tokens_bytes * model.key_value_size, group.num_ranks - 1
    edges = np.where(group.crosses_nodes, group.num_nodes / group.num_ranks, 0.0)
    heads_bytes = 2 * tokens_bytes * (model.query_size + model.key_value_size + model.attention_output_size)
    sent: Floats = np.select(
        [x.context_exchange == ContextExchange.RING, x.context_exchange == ContextExchange.ALL_GATHER],
        [edges * (3 * others + 1) * block_bytes, edges * 2 * others * block_bytes],
        default=_outside(group) * heads_bytes,
    )
    return np.where(group.crosses_nodes, _layer_visits(x, job) * job.cluster.world_size * sent, 0.0)


def _expert_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Return the bytes that leave nodes for tokens on the way to their experts and back, forward and backward."""
    experts = job.model.experts
    if experts is None:
        return np.zeros(len(x))
    group = expert_group(x, job)
    sent_bytes_of_rank = x.element_bytes * job.model.hidden_size * own_copies(x, job, experts)
    visits = _layer_visits(x, job) * job.model.num_sparse_layers / job.model.num_layers
    return visits * job.cluster.world_size * 4 * sent_bytes_of_rank * _outside(group)


def _pipeline_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Return the bytes that leave nodes for hidden states and their gradients between stages on different nodes.

    With several stages per rank, the last rank also sends to the first rank, except in V-shaped schedules.
    """
    group, ranks = pipeline_group(x, job.cluster), job.cluster.world_size / x.pipeline_parallel_degree
    in_a_ring = ~is_one_of(x.pipeline_schedule, (PipelineSchedule.ZBV, PipelineSchedule.DUALPIPEV))
    turns: Integers = (x.virtual_stages_per_rank - 1) * in_a_ring
    hops = np.where(group.crosses_nodes, x.virtual_stages_per_rank * (group.num_nodes - 1) + turns, 0)
    return hops * ranks * 2 * num_micro_batches(x, job) * sent_bytes(x, job)


def _layer_visits(x: LayoutColumns, job: Job) -> Floats:
    """Return the number of layers that a rank computes in a step: the layers of its stages times the micro-batches."""
    visits: Floats = num_micro_batches(x, job) * (job.model.num_layers / x.pipeline_parallel_degree)
    return visits


IDLE_SHARE = 0.22
"""Power that a waiting device with a job draws, as a share of its highest power, if its description does not state it.
It is an assumption: 155 W of 700 on an H100, 100 of 400 on an A100, 260 of 1,000 on a B200 (``research/clocks.py``)."""

_COMPUTING = ("matrix_s", "attention_s", "pointwise_s", "recompute_s", "optimizer_s")
"""Parts of a step in which an accelerator computes. It waits in all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerColumns:
    """The electric power of many layouts in watts (see ``Power``), with one row per layout."""

    accelerators_w: Floats
    hosts_w: Floats
    network_w: Floats
    building_w: Floats

    @property
    def total_w(self) -> Floats:
        """The electric power of a layout's whole job in watts: accelerators, hosts, network and building together."""
        total_w: Floats = self.accelerators_w + self.hosts_w + self.network_w + self.building_w
        return total_w

    def row(self, index: int, *, is_measured: bool) -> Power:
        """Return the power of one layout as a single ``Power`` object.

        Args:
            index: Row of the layout.
            is_measured: True if the power of the accelerators was measured and not modelled.
        """
        parts = {f.name: float(getattr(self, f.name)[index]) for f in fields(self)}
        return Power(is_measured=is_measured, **parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceCostColumns:
    """The resource cost (``ResourceCost``: power, price, CO2, complexity) of many layouts, with one row per layout.

    Formulas for one ``ResourceCost`` also work on these columns.
    """

    power: PowerColumns | None
    """Power of the job; None if the accelerator's power is not known."""
    price_per_hour: Floats
    co2_kg_per_hour: Floats
    complexity: Floats
    robustness: Floats | None = None
    """Throughput under the fault trace divided by that without faults; None without a fault trace."""

    def __len__(self) -> int:
        return len(self.complexity)

    def row(self, index: int, *, is_measured: bool = False) -> ResourceCost:
        """Return the resource cost of one layout as a single ``ResourceCost`` object.

        Args:
            index: Row of the layout.
            is_measured: True if the power of the accelerators was measured and not modelled.
        """
        return ResourceCost(
            power=None if self.power is None else self.power.row(index, is_measured=is_measured),
            price_per_hour=float(self.price_per_hour[index]),
            co2_kg_per_hour=float(self.co2_kg_per_hour[index]),
            complexity=float(self.complexity[index]),
            robustness=None if self.robustness is None else float(self.robustness[index]),
        )


def predicted_resource_costs(x: LayoutColumns, job: Job, predictions: PredictionColumns) -> ResourceCostColumns:
    """Return the resource cost (power, price, CO2, complexity) of every layout, computed from its prediction.

    Args:
        x: Layouts, one per row.
        job: Job of the layouts.
        predictions: Predictions of the layouts for the job, which say how busy the accelerators are.
    """
    step_s, robust_s = predictions.step_time.total_s, predictions.robust_step_s
    drawn_w = _accelerators_w(job.cluster, _busy_share(predictions.step_time))
    return _resource_costs(x, job, drawn_w, step_s, None if robust_s is None else step_s / robust_s)


def resource_cost_of(
    layout: Layout,
    job: Job,
    prediction: Prediction,
    reached: Measurement | TrialEstimate | None = None,
    power_w: float | None = None,
) -> ResourceCost:
    """Return the resource cost (power, price, CO2, complexity) of one layout, by prediction or results of a trial.

    Args:
        layout: A legal layout.
        job: Job of the layout.
        prediction: Prediction of the layout for the job, which says how busy the accelerators are.
        reached: Result of a trial. Its step time and robustness replace the predicted values. None: no trial ran.
        power_w: Measured mean power of one accelerator in watts; None: the cost model computes it.
    """
    cluster = job.cluster
    parts = {f.name: np.array([getattr(prediction.step_time, f.name)]) for f in fields(StepTime)}
    modelled_w = _accelerators_w(cluster, _busy_share(StepTime(**parts)))
    drawn_w = modelled_w if power_w is None else np.array([power_w * cluster.world_size])
    robustness = _robustness(prediction, reached)
    step_s = np.array([prediction.step_time.total_s if reached is None else reached.step_time_s])
    columns = LayoutColumns.from_layouts([layout])
    found = _resource_costs(columns, job, drawn_w, step_s, None if robustness is None else np.array([robustness]))
    return found.row(0, is_measured=power_w is not None)


def value_per_step(objective: Objective, job: Job, resource_costs: ResourceCostColumns | None, num_rows: int) -> Floats:
    """Return each layout's objective value times its step time. Divide it by the step time to get the objective value.

    Layouts are ranked by their objective value. The returned number does not depend on the step time.

    Args:
        objective: Objective that layouts are compared by.
        job: Job of the layouts.
        resource_costs: Resource cost of every row; None if the objective does not read it.
        num_rows: Number of layouts.
    """
    value = objective.value_per_step(job, cast("ResourceCost", resource_costs))  # its formulas hold for columns
    return np.array(np.broadcast_to(value, (num_rows,)), dtype=np.float64)


def _busy_share(step_time: StepTime[Floats]) -> Floats:
    """Return the share of the step in which the slowest rank computes. It is used for all ranks."""
    parts: Sequence[Floats] = [getattr(step_time, name) for name in _COMPUTING]
    share: Floats = np.sum(parts, axis=0) / step_time.total_s
    return share


def _accelerators_w(cluster: Cluster, busy_share: Floats) -> Floats | None:
    """Return the power of all accelerators; None if the highest power of one is not known."""
    accelerator = cluster.accelerator
    if not accelerator.power_w:
        return None
    idle_w = _idle_w(accelerator)
    return cluster.world_size * (idle_w + (accelerator.power_w - idle_w) * busy_share)


def _idle_w(accelerator: Accelerator) -> float:
    return IDLE_SHARE * accelerator.power_w if accelerator.idle_power_w is None else accelerator.idle_power_w


def _resource_costs(
    x: LayoutColumns, job: Job, drawn_w: Floats | None, step_s: Floats, robustness: Floats | None
) -> ResourceCostColumns:
    """Return the resource costs of layouts from the power of the accelerators and the step times."""
    tariff, nothing = job.cluster.tariff, np.zeros(len(x))
    power = None if drawn_w is None else _power(job.cluster, drawn_w, _network_w(x, job, step_s))
    total_kw = nothing if power is None else power.total_w / 1000
    return ResourceCostColumns(
        power=power,
        price_per_hour=_price_per_hour(job.cluster, total_kw),
        co2_kg_per_hour=tariff.co2_kg_per_kwh * total_kw,
        complexity=nothing + complexity(cast("Layout", x)),
        robustness=robustness,
    )


def _network_w(x: LayoutColumns, job: Job, step_s: Floats) -> Floats:
    """Return the power of network ports and switches for the bytes that leave nodes."""
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
    """Return the US dollars of a useful hour.

    Some spot hours are lost to interruptions, but must be paid.
    """
    tariff = cluster.tariff
    hourly = tariff.spot_price_per_accelerator_hour if tariff.is_spot else cluster.price_per_accelerator_hour
    paid: Floats = cluster.world_size * hourly + tariff.energy_price_per_kwh * total_kw
    return paid / (1 - tariff.interrupted_share) if tariff.is_spot else paid


def _robustness(prediction: Prediction, reached: Measurement | TrialEstimate | None) -> float | None:
    """Return the throughput under the fault trace divided by that without faults: measured, otherwise predicted."""
    if isinstance(reached, Measurement) and reached.robust is not None:
        return reached.step_time_s / reached.robust.step_time_s
    if prediction.robust_step_s is None:
        return None
    return prediction.step_time.total_s / prediction.robust_step_s
