"""Fields of a layout and settings of torchtitan: one table that is written and read by.

Names and defaults are those of ``torchtitan/config/job_config.py`` (torchtitan 0.2.2) and of
``torchtitan/config/configs.py`` (0.3.0); words of schedules are those that ``get_schedule_class`` takes (torch 2.13).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotuner.core.choices import ContextExchange, OptimizerKernel, PipelineSchedule
from autotuner.core.layout import OPTIONS, Layout

Value = bool | int | float | str | tuple["Value", ...]

SCHEDULES: Mapping[int, str] = {
    PipelineSchedule.GPIPE: "GPipe",
    PipelineSchedule.ONE_F_ONE_B: "1F1B",
    PipelineSchedule.INTERLEAVED_1F1B: "Interleaved1F1B",
    PipelineSchedule.ZERO_BUBBLE: "InterleavedZeroBubble",
    PipelineSchedule.ZBV: "ZBVZeroBubble",
    PipelineSchedule.DUALPIPEV: "DualPipeV",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One field and the setting that says it.

    Attributes:
        default: What torchtitan takes where nothing is said.
        words: Of the field's values, where they differ from these.
        near: Words that a layout has no value for, with the nearest one.
        beside: The degree that must be above 1 for the setting to mean anything; empty: it always does.
    """

    name: str
    setting: str
    default: Value
    words: Mapping[int, Value] = field(default_factory=dict)
    near: Mapping[Value, int] = field(default_factory=dict)
    beside: str = ""

    def matters(self, layout: Layout) -> bool:
        """Whether the setting means anything beside the layout's degrees."""
        return not self.beside or getattr(layout, self.beside) > 1

    def said(self, layout: Layout) -> Value | None:
        """The setting's value for a layout; None: it has no word."""
        value = getattr(layout, self.name)
        return self.words.get(value) if self.words else OPTIONS[self.name].to_plain(value)


def _degree(name: str, default: int = 1) -> Entry:
    return Entry(name=name, setting=f"parallelism.{name}", default=default)


def _ends(which: str) -> Entry:
    setting = f"parallelism.pipeline_parallel_{which}_stage_less_layers"
    return Entry(name=f"{which}_stage_less_layers", setting=setting, default=1, beside="pipeline_parallel_degree")


_COMMON = (
    _degree("data_parallel_replicate_degree"),
    _degree("data_parallel_shard_degree", -1),  # all ranks that are left
    _degree("tensor_parallel_degree"),
    _degree("context_parallel_degree"),
    _degree("expert_parallel_degree"),
    _degree("pipeline_parallel_degree"),
    Entry(
        name="pipeline_schedule",
        setting="parallelism.pipeline_parallel_schedule",
        default="1F1B",
        words=SCHEDULES,
        near={
            "LoopedBFS": PipelineSchedule.INTERLEAVED_1F1B,
            "PipelineScheduleSingle": PipelineSchedule.ONE_F_ONE_B,
            "PipelineScheduleMulti": PipelineSchedule.INTERLEAVED_1F1B,
        },
        beside="pipeline_parallel_degree",
    ),
    _ends("first"),
    _ends("last"),
    Entry(name="compiled", setting="compile.enable", default=False),
    Entry(
        name="optimizer_kernel",
        setting="optimizer.implementation",
        default="fused",
        words={OptimizerKernel.FUSED: "fused", OptimizerKernel.FOREACH: "foreach"},
        near={"for-loop": OptimizerKernel.FOREACH, "fused_opt_states_bf16": OptimizerKernel.FUSED},
    ),
)

ENTRIES_0_2: tuple[Entry, ...] = (
    *_COMMON,
    Entry(
        name="loss_parallel",
        setting="parallelism.disable_loss_parallel",
        default=False,
        words={True: False, False: True},
        beside="tensor_parallel_degree",
    ),
    Entry(
        name="async_tensor_parallel",
        setting="parallelism.enable_async_tensor_parallel",
        default=False,
        beside="tensor_parallel_degree",
    ),
    Entry(
        name="context_exchange",
        setting="parallelism.context_parallel_rotate_method",
        default="allgather",
        # "alltoall" permutes keys and values to the next rank, which is a ring (torch 2.13, _AllToAllRotater of
        # distributed/tensor/experimental/_context_parallel/_attention.py); nothing exchanges heads for sequence
        words={ContextExchange.RING: "alltoall", ContextExchange.ALL_GATHER: "allgather"},
        beside="context_parallel_degree",
    ),
)

ENTRIES_0_3: tuple[Entry, ...] = (
    *_COMMON,
    Entry(
        name="sequence_parallel",
        setting="parallelism.enable_sequence_parallel",
        default=True,
        beside="tensor_parallel_degree",
    ),
    Entry(
        name="async_tensor_parallel",
        setting="compile.enable_async_tensor_parallel",
        default=False,
        beside="tensor_parallel_degree",
    ),
)
