"""Fields of a layout and settings of torchtitan: one table that is written and read by.

Names and defaults are those of ``torchtitan/config/job_config.py`` (torchtitan 0.2.2) and of
``torchtitan/config/configs.py`` (0.3.0); words of schedules are those that ``get_schedule_class`` takes (torch 2.13).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autotuner.core.choices import ContextExchange, OptimizerKernel, PipelineSchedule
from autotuner.core.layout import Layout
from autotuner.export.table import Key, number, switch, words

Value = bool | int | float | str | tuple["Value", ...]

SCHEDULES: Mapping[str, PipelineSchedule] = {
    "GPipe": PipelineSchedule.GPIPE,
    "1F1B": PipelineSchedule.ONE_F_ONE_B,
    "Interleaved1F1B": PipelineSchedule.INTERLEAVED_1F1B,
    "InterleavedZeroBubble": PipelineSchedule.ZERO_BUBBLE,
    "ZBVZeroBubble": PipelineSchedule.ZBV,
    "DualPipeV": PipelineSchedule.DUALPIPEV,
}

_OTHER_SCHEDULES = {
    "LoopedBFS": PipelineSchedule.INTERLEAVED_1F1B,
    "PipelineScheduleSingle": PipelineSchedule.ONE_F_ONE_B,
    "PipelineScheduleMulti": PipelineSchedule.INTERLEAVED_1F1B,
}
"""With the nearest that a layout has."""

_KERNELS = {
    "fused": OptimizerKernel.FUSED,
    "foreach": OptimizerKernel.FOREACH,
    "for-loop": OptimizerKernel.FOREACH,
    "fused_opt_states_bf16": OptimizerKernel.FUSED,
}
"""The third and the fourth are near, and not the same."""


def _above_1(degree: str) -> Callable[[Layout], bool]:
    return lambda layout: getattr(layout, degree) > 1


_splits, _meets, _pipes = map(
    _above_1, ("tensor_parallel_degree", "context_parallel_degree", "pipeline_parallel_degree")
)


def _degree(name: str, default: int = 1) -> Key:
    return number(f"parallelism.{name}", name, when=lambda layout: True, default=default)


def _ends(which: str) -> Key:
    path = f"parallelism.pipeline_parallel_{which}_stage_less_layers"
    return number(path, f"{which}_stage_less_layers", when=_pipes, default=1)


_COMMON = (
    _degree("data_parallel_replicate_degree"),
    _degree("data_parallel_shard_degree", -1),  # all ranks that are left
    _degree("tensor_parallel_degree"),
    _degree("context_parallel_degree"),
    _degree("expert_parallel_degree"),
    _degree("pipeline_parallel_degree"),
    words(
        "parallelism.pipeline_parallel_schedule",
        "pipeline_schedule",
        {**SCHEDULES, **_OTHER_SCHEDULES},
        when=_pipes,
        default="1F1B",
        any_case=True,
    ),
    _ends("first"),
    _ends("last"),
    switch("compile.enable", "compiled", default=False),
    words("optimizer.implementation", "optimizer_kernel", _KERNELS, default="fused", any_case=True),
)

KEYS_0_2: tuple[Key, ...] = (
    *_COMMON,
    words(
        "parallelism.disable_loss_parallel", "loss_parallel", {False: True, True: False}, when=_splits, default=False
    ),
    switch("parallelism.enable_async_tensor_parallel", "async_tensor_parallel", when=_splits, default=False),
    words(
        "parallelism.context_parallel_rotate_method",
        "context_exchange",
        # "alltoall" permutes keys and values to the next rank, which is a ring (torch 2.13, _AllToAllRotater of
        # distributed/tensor/experimental/_context_parallel/_attention.py); nothing exchanges heads for sequence
        {"alltoall": ContextExchange.RING, "allgather": ContextExchange.ALL_GATHER},
        when=_meets,
        default="allgather",
        any_case=True,
    ),
)

KEYS_0_3: tuple[Key, ...] = (
    *_COMMON,
    switch("parallelism.enable_sequence_parallel", "sequence_parallel", when=_splits, default=True),
    switch("compile.enable_async_tensor_parallel", "async_tensor_parallel", when=_splits, default=False),
)
