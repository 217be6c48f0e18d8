"""Accelerator: the rates, memory and power of one device, and the measured times of CPU cores.

On a GPU the host launches kernels while the device computes. A core does both, one after the other, and what it calls
may take longer than what it computes, above all where layers are distributed tensors.
"""

from __future__ import annotations

from typing import Literal

from autotuner.core.choices import AttentionKernel, Fp8Recipe, Precision
from autotuner.core.errors import InvalidInput
from autotuner.core.value import Count, NonNegative, Positive, PositiveShare, Seconds, value


@value
class PassTimes:
    """Seconds of one micro-batch, either way."""

    forward_s: float
    backward_s: float


@value
class SplitTimes:
    """What splitting a layer over tensor ranks adds: dispatch of distributed tensors, and waiting for each other."""

    num_ranks: int
    """Tensor ranks."""
    sequence_parallel: bool
    layer: PassTimes
    """Of one layer, with the start of its collectives and the wait for the other ranks, without their bytes."""
    ends: PassTimes
    """Of embedding, last norm, output and loss together, in the same way."""
    dispatch_s: float = 0.0
    """What of the layer's forward pass is no waiting."""


@value
class ShardTimes:
    """What sharding a layer's parameters adds to each use of them: the start of collectives, without their bytes."""

    num_ranks: int
    """Shards; with others it grows with the steps of a ring."""
    gather_s: float
    """Before use."""
    reduce_s: float
    """Of gradients, after it."""


@value
class CoreTimes:
    """Seconds of a core's own for a micro-batch, as a profile measured them; all but the first two are further ones."""

    layer: PassTimes
    """A layer that nothing splits."""
    ends: PassTimes
    """Embedding, last norm, output and loss together."""
    selective: PassTimes
    """A layer that recomputes what products do not need, each operation of which is watched."""
    full: PassTimes
    """A layer that recomputes all."""
    sharded: ShardTimes | None
    """A layer whose parameters are sharded; None where there was one rank."""
    split: tuple[SplitTimes, ...]
    """Layers on tensor ranks, by their number, with and without sequence parallelism."""
    pointwise_bytes_per_s: float
    """At which what lies between products seems to move its operands once."""


@value
class MeasuredGemm:
    """What this very device reached in matrix products of one precision (``profile``)."""

    precision: Precision
    peak_share: PositiveShare
    """What large products reach of the stated peak."""


@value
class MeasuredAttention:
    """What this very device reached in one attention kernel and precision."""

    kernel: AttentionKernel
    precision: Precision
    forward_share: Positive
    """What two products reach of the stated peak, as if all pairs of tokens met, causal or not."""
    backward_share: Positive
    """What the five products of a backward pass reach, which computes the scores again."""


@value
class Accelerator:
    """One device that a rank runs on; for ``cpu`` it is one core."""

    name: str
    """What answers call it; constants of the catalog are found by it."""
    kind: Literal["cuda", "rocm", "cpu"]
    """Who made it, by what PyTorch calls its devices: NVIDIA, AMD, or a core."""
    memory_bytes: Count
    """What a rank may allocate."""
    memory_bandwidth_bytes_per_s: Positive
    """Of its own memory, as the maker states it."""
    fp32_flop_per_s: Positive
    """Dense peak of matrix multiplication."""
    bf16_flop_per_s: NonNegative
    """Dense peak of matrix multiplication; 0 where the format is missing."""
    fp8_flop_per_s: NonNegative
    """Dense peak of matrix multiplication; 0 where the format is missing."""
    peak_source: str
    """Where the peaks come from: a data sheet with its date, or a measurement."""
    power_w: NonNegative
    """At most, as the maker states it; 0 where it is not known."""
    sustained_share: PositiveShare = 0.9
    """Share of its short-benchmark rate that it keeps through a training step, when power and heat limit the clock."""
    kernel_launch_s: Seconds = 5e-6
    """Time between two dependent kernels that do nothing; on a CPU, what dispatching one takes."""
    attention_kernels: tuple[AttentionKernel, ...] = (AttentionKernel.MATH,)
    """Implementations that run on it."""
    peak_is_measured: bool = False
    """The peaks are this very machine's GEMM rates, so a trial here need not measure its own."""
    host_bandwidth_bytes_per_s: Positive = 31.5e9
    """Between its memory and the host's, one direction, as the maker states it."""
    measured_gemm: tuple[MeasuredGemm, ...] = ()
    """What a profile of this device says, in the place of the catalog's; empty without one."""
    measured_attention: tuple[MeasuredAttention, ...] = ()
    """What a profile says of attention on this device; empty without one."""
    fp4_flop_per_s: NonNegative = 0.0
    """Dense peak of nvfp4; 0 where the format is missing."""
    fp8_sustained_share: PositiveShare | None = None
    """The share that it keeps where products are in fp8; None: no less."""
    fp4_sustained_share: PositiveShare | None = None
    """The share that it keeps where products are in nvfp4; None: no less."""
    fp8_recipes: tuple[Fp8Recipe, ...] = (Fp8Recipe.TENSORWISE, Fp8Recipe.ROWWISE, Fp8Recipe.DELAYED)
    """Ways to scale fp8 values that it multiplies, where it multiplies fp8 at all."""
    core: CoreTimes | None = None
    """What a core spends beside the work itself; None for a device that a host launches kernels for."""
    idle_power_w: float | None = None
    """Of a device that holds a job and waits; None: a share of what it draws at most."""

    def __post_init__(self) -> None:
        if self.idle_power_w is not None and not 0 <= self.idle_power_w <= (self.power_w or self.idle_power_w):
            rule = f"must lie in 0..{self.power_w:g}, what the device draws at most"
            raise InvalidInput("idle_power_w", self.idle_power_w, rule, self.power_w)
        if not self.attention_kernels:
            raise InvalidInput("attention_kernels", (), "must name at least one kernel", "math")

    def peak_flop_per_s(self, precision: Precision) -> float:
        """Dense peak in that format; 0.0 where the hardware has none."""
        match precision:
            case Precision.FP32:
                return self.fp32_flop_per_s
            case Precision.BF16:
                return self.bf16_flop_per_s
            case Precision.FP8:
                return self.fp8_flop_per_s
            case Precision.FP8_EMULATED:
                return self.bf16_flop_per_s
            case Precision.NVFP4:
                return self.fp4_flop_per_s if self.kind == "cuda" else 0.0  # AMD's units scale 4 bits as mxfp4

    @property
    def applies_block_scales(self) -> bool:
        """Whether its tensor cores multiply by the scales of blocks of values (Blackwell, CDNA 4).

        Those also add up in fp32 and read 8-bit factors along either dimension, which earlier ones do not.
        """
        return Fp8Recipe.MXFP8 in self.fp8_recipes

    def sustained_share_in(self, precision: Precision) -> float:
        """Share of its short-benchmark rate that products in that format keep through a training step."""
        match precision:
            case Precision.FP8:
                own = self.fp8_sustained_share
            case Precision.NVFP4:
                own = self.fp4_sustained_share
            case _:
                own = None
        return self.sustained_share if own is None else own

    @property
    def reference_precision(self) -> Precision:
        """Format whose peak MFU is a share of, whatever the precision of a layout, so that MFU ranks like tokens/s.

        A GPU's is bf16, or fp32 where it has no bf16. A core's is fp32: the one format that every core multiplies at
        full speed, while some emulate bf16 slowly and others have units for it.
        """
        return Precision.FP32 if self.kind == "cpu" or not self.bf16_flop_per_s else Precision.BF16

    @property
    def reference_flop_per_s(self) -> float:
        """Dense peak that MFU is a share of."""
        return self.peak_flop_per_s(self.reference_precision)

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """Formats that the hardware multiplies in."""
        return tuple(p for p in Precision if self.peak_flop_per_s(p) > 0)
