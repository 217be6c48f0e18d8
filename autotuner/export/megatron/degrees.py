"""Degrees and batch sizes, and how many ranks they need.

Names and defaults: megatron-core 0.16.1, model_parallel_config.py; the data-parallel degree is what is left,
training/arguments.py, validate_args.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, lcm

from autotuner.core.choices import ContextExchange
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.export.megatron.reading import Reading, Settings

_DEGREES = {
    "tensor_model_parallel_size": "tensor_parallel_degree",
    "pipeline_model_parallel_size": "pipeline_parallel_degree",
    "context_parallel_size": "context_parallel_degree",
    "expert_model_parallel_size": "expert_parallel_degree",
}

_EXCHANGES = {
    "p2p": ContextExchange.RING,  # the default
    "allgather": ContextExchange.ALL_GATHER,
    "a2a": ContextExchange.ALL_TO_ALL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """Degrees as Megatron says them, with the data-parallel one that is left."""

    tensor: int
    pipeline: int
    context: int
    expert: int
    data: int

    @property
    def num_gradients(self) -> int:
        """Ranks with a gradient of their own for the same parameter."""
        return self.data * self.context


def write_degrees(job: Job, layout: Layout) -> Settings:
    """Degrees, sequence parallelism, the exchange of context ranks, batch sizes."""
    written: Settings = {name: getattr(layout, field) for name, field in _DEGREES.items()}
    if not job.model.experts:
        del written["expert_model_parallel_size"]
    elif layout.expert_parallel_degree > 1 and layout.tensor_parallel_degree > 1:
        # 0.16.1's default is the tensor degree; software that gives ranks whole experts says 1
        written["expert_tensor_parallel_size"] = layout.tensor_parallel_degree if job.stack.splits_experts else 1
    if job.model.experts:
        written |= _dispatch(job, layout)
    if layout.sequence_parallel:
        written["sequence_parallel"] = True
    if layout.context_parallel_degree > 1:
        word = next(word for word, exchange in _EXCHANGES.items() if exchange == layout.context_exchange)
        written["cp_comm_type"] = (word,)
    written["micro_batch_size"] = layout.micro_batch_size
    written["global_batch_size"] = job.workload.global_batch_size
    return written


def _dispatch(job: Job, layout: Layout) -> Settings:
    """How tokens reach experts, as the stack does it; DeepEP wants several ranks (moe/token_dispatcher.py)."""
    if job.stack.dispatch == "all_gather":
        return {"moe_token_dispatcher_type": "allgather"}
    if job.stack.dispatch == "all_to_all" or layout.tensor_parallel_degree * layout.expert_parallel_degree == 1:
        return {"moe_token_dispatcher_type": "alltoall"}
    return {"moe_token_dispatcher_type": "flex", "moe_enable_deepep": True}


def read_degrees(reading: Reading) -> tuple[dict[str, object], Degrees]:
    """The same back, and the data-parallel degree that the ranks leave.

    Raises:
        InvalidInput: A degree is no whole number above 0, or the caller's number of ranks does not fit them.
    """
    found: dict[str, object] = {field: reading.count(name) for name, field in _DEGREES.items()}
    tensor, pipeline, context, expert = (reading.count(name) for name in _DEGREES)
    data = _data_degree(reading, tensor, pipeline, context, expert)
    found["micro_batch_size"] = reading.count("micro_batch_size")
    found["sequence_parallel"] = _sequence_parallel(reading, tensor)
    found["context_exchange"] = _exchange(reading) if context > 1 else ContextExchange.RING
    return found, Degrees(tensor=tensor, pipeline=pipeline, context=context, expert=expert, data=data)


def _sequence_parallel(reading: Reading, tensor: int) -> bool:
    asked = reading.on("sequence_parallel")
    if asked and tensor == 1:
        reading.changed("sequence_parallel", "with one tensor rank Megatron switches it off")
    return asked and tensor > 1


def _exchange(reading: Reading) -> ContextExchange:
    words = reading.settings.words("cp_comm_type") or ("p2p",)
    word = words[0].lower()
    if len(set(words)) > 1:
        reading.changed("cp_comm_type", f"layers differ, and a layout has one word for all: {word}")
    if word == "a2a+p2p":
        reading.changed("cp_comm_type", "a2a inside groups and p2p between them is told as a ring")
        return ContextExchange.RING
    if word not in _EXCHANGES:
        raise InvalidInput("cp_comm_type", word, f"must be one of {', '.join(_EXCHANGES)}, a2a+p2p", "p2p")
    return _EXCHANGES[word]


# ---------------------------------------------------------------- ranks
def _data_degree(reading: Reading, tensor: int, pipeline: int, context: int, expert: int) -> int:
    expert_tensor = reading.count("expert_tensor_parallel_size", tensor)
    if expert_tensor not in (1, tensor):
        reading.changed("expert_tensor_parallel_size", f"a layout splits an expert over all {tensor} ranks, or none")
    replica, least = tensor * pipeline * context, _least(reading, tensor, context, expert * expert_tensor)
    if reading.asked_ranks is not None:
        return _of_caller(reading.asked_ranks, replica, least)
    return _of_text(reading, replica, least)


def _least(reading: Reading, tensor: int, context: int, expert_ranks: int) -> int:
    """The least number of data-parallel ranks: experts and sharded optimizers need so many."""
    for_experts = expert_ranks // gcd(expert_ranks, context * tensor)
    instances = reading.count("num_distributed_optimizer_instances")
    return lcm(for_experts, instances // gcd(instances, context))


def _of_caller(asked: int, replica: int, least: int) -> int:
    if asked < 1 or asked % (replica * least):
        rule = f"must be a multiple of {replica * least}: a replica has {replica} ranks, and there are {least} at least"
        nearest = max(1, round(asked / (replica * least))) * replica * least
        raise InvalidInput("num_ranks", asked, rule, nearest)
    return asked // replica


def _of_text(reading: Reading, replica: int, least: int) -> int:
    said = reading.num_ranks
    if said is not None and said % (replica * least) == 0:
        return said // replica
    fewest = replica * least
    if said is None:
        reading.assumed("world_size", f"nothing says how many ranks there are; {fewest} are the fewest that run it")
    else:
        reading.num_ranks = None
        reading.changed("world_size", f"{said} ranks cannot run it; {fewest} are the fewest that do")
    return least
