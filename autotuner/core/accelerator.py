"""Accelerator: the rates, memory and power of one device, and the measured times of CPU cores.

On a GPU the host launches kernels while the device computes. A CPU core calls each operation and then computes it. The
calls may take longer than the computation, above all where layers are distributed tensors.
"""

from __future__ import annotations

from typing import Literal

from autotuner.core.choices import AttentionKernel, Fp8Recipe, Precision
from autotuner.core.errors import InvalidInput
from autotuner.core.value import Count, NonNegative, Positive, PositiveShare, Seconds, value

_STREAMING_SHARE = 0.85
"""Share of the stated memory bandwidth that streaming kernels reach: 1.74 of 2.04 TB/s for BabelStream's triad on an
A100."""


@value
class PassTimes:
    """Measured seconds that one micro-batch takes in a part of the model, for the forward and the backward pass."""

    forward_s: float
    backward_s: float


@value
class SplitTimes:
    """Measured seconds that splitting a layer over tensor ranks adds: starting collectives and waiting for ranks.

    The times do not include the transfer of bytes.
    """

    num_ranks: int
    """Number of tensor ranks."""
    sequence_parallel: bool
    layer: PassTimes
    """Times of one layer. They include the start of its collectives and the wait for other ranks, but not the transfer
    of bytes."""
    ends: PassTimes
    """Times of embedding, last norm, output and loss together, counted in the same way."""
    dispatch_s: float = 0.0
    """Part of the layer's forward time that is spent on dispatch and not on waiting."""


@value
class ShardTimes:
    """Measured seconds that sharding the parameters of a layer adds: starting collectives, without moving bytes."""

    num_ranks: int
    """Number of shards. With another number, the time grows with the number of steps of a ring."""
    gather_s: float
    """Time to gather the parameters before they are used."""
    reduce_s: float
    """Time to reduce the gradients after the backward pass."""


@value
class CoreTimes:
    """Measured seconds that a CPU core spends on one micro-batch in addition to arithmetic.

    Most of them are spent on calls of operations.
    """

    layer: PassTimes
    """Times of a layer that is not split or sharded."""
    ends: PassTimes
    """Times of embedding, last norm, output and loss together."""
    selective: PassTimes
    """Times of a layer that recomputes everything except matrix products. PyTorch then intercepts each operation."""
    full: PassTimes
    """Times of a layer with full recomputation."""
    sharded: ShardTimes | None
    """Times of a layer whose parameters are sharded; None if the profile ran on one rank."""
    split: tuple[SplitTimes, ...]
    """Times of a layer that tensor ranks split: one entry per number of ranks, with and without sequence
    parallelism."""
    pointwise_bytes_per_s: float
    """Bandwidth that explains the measured time of pointwise operations if each of them moves its operands once."""


@value
class MeasuredGemm:
    """The share of the stated peak that this device reached in matrix products of one precision, from a profile."""

    precision: Precision
    peak_share: PositiveShare
    """Share of the peak in the law of the device's matrix products (``GemmLaw``). The times that the law then gives for
    large products agree with the measured times."""


@value
class MeasuredAttention:
    """The measured share of the peak that this device reached with one attention kernel in one precision."""

    kernel: AttentionKernel
    precision: Precision
    forward_share: Positive
    """Share of the stated peak that the two products of a forward pass reach. Masked scores are counted, as if
    attention were not causal."""
    backward_share: Positive
    """Share of the stated peak that the five products of a backward pass reach. The backward pass computes the scores
    again."""


@value
class Accelerator:
    """One device that runs one rank: a GPU, or one CPU core if the kind is ``cpu``.

    Raises:
        InvalidInput: The idle power exceeds the highest power, or there is no attention kernel.
    """

    name: str
    """Name of the accelerator. Its constants are found in the catalog by this name."""
    kind: Literal["cuda", "rocm", "cpu"]
    """Device type in PyTorch's sense: ``cuda`` for NVIDIA, ``rocm`` for AMD, ``cpu`` for a core."""
    memory_bytes: Count
    """Bytes that a rank may allocate."""
    memory_bandwidth_bytes_per_s: Positive
    """Bandwidth of the device's own memory, as its maker states it."""
    fp32_flop_per_s: Positive
    """Dense peak of matrix products in fp32."""
    bf16_flop_per_s: NonNegative
    """Dense peak of matrix products in bf16; 0 where the format is missing."""
    fp8_flop_per_s: NonNegative
    """Dense peak of matrix products in fp8; 0 where the format is missing."""
    peak_source: str
    """Source of the peaks: a data sheet with its date, or a measurement."""
    power_w: NonNegative
    """Highest power draw, as its maker states it; 0 where it is not known."""
    sustained_share: PositiveShare = 0.9
    """Share of its short-benchmark rate that the accelerator keeps through a training step, because power and heat
    limit the clock."""
    kernel_launch_s: Seconds = 5e-6
    """Time between two dependent kernels that do nothing. On a CPU: the time to dispatch one operation."""
    attention_kernels: tuple[AttentionKernel, ...] = (AttentionKernel.MATH,)
    """Attention kernels that run on the accelerator."""
    peak_is_measured: bool = False
    """True if the peaks are matrix-product rates that were measured on this machine, so that its trials do not measure
    them again."""
    host_bandwidth_bytes_per_s: Positive = 31.5e9
    """Bandwidth between the accelerator's memory and the host's, in one direction, as the maker states it."""
    measured_bandwidth_bytes_per_s: Positive | None = None
    """Bandwidth of large copies and sums that a profile of this device measured; None without a profile."""
    measured_gemm: tuple[MeasuredGemm, ...] = ()
    """Matrix-product results of a profile of this device. They replace those of the catalog; empty without a
    profile."""
    measured_attention: tuple[MeasuredAttention, ...] = ()
    """Attention results of a profile of this device; empty without a profile."""
    fp4_flop_per_s: NonNegative = 0.0
    """Dense peak of matrix products in nvfp4; 0 where the format is missing."""
    fp8_sustained_share: PositiveShare | None = None
    """Share of its short-benchmark rate that the accelerator keeps where products are in fp8; None: the same as in
    other formats."""
    fp4_sustained_share: PositiveShare | None = None
    """Share of its short-benchmark rate that the accelerator keeps where products are in nvfp4; None: the same as in
    other formats."""
    fp8_recipes: tuple[Fp8Recipe, ...] = (Fp8Recipe.TENSORWISE, Fp8Recipe.ROWWISE, Fp8Recipe.DELAYED)
    """Ways to scale fp8 values that the device supports, if it multiplies fp8 at all."""
    core: CoreTimes | None = None
    """Extra times of a CPU core; None for a device whose kernels are launched by a host."""
    idle_power_w: float | None = None
    """Power draw of a device that waits while it holds a job; None: a share of its highest draw."""

    def __post_init__(self) -> None:
        if self.idle_power_w is not None and not 0 <= self.idle_power_w <= (self.power_w or self.idle_power_w):
            rule = (
                f"must be between 0 and {self.power_w:g}, which is power_w, the most watts that the accelerator draws"
            )
            raise InvalidInput("idle_power_w", self.idle_power_w, rule, 0.0 if self.idle_power_w < 0 else self.power_w)
        if not self.attention_kernels:
            raise InvalidInput("attention_kernels", (), "must name at least one kernel, for example math")

    @property
    def streaming_bytes_per_s(self) -> float:
        """The memory bandwidth, in bytes per second, of kernels that only read and write large tensors.

        It is the measured bandwidth if there is one, and otherwise the usual share of the stated bandwidth.
        """
        return self.measured_bandwidth_bytes_per_s or _STREAMING_SHARE * self.memory_bandwidth_bytes_per_s

    def peak_flop_per_s(self, precision: Precision) -> float:
        """Return the dense peak of matrix products in a number format, in FLOP/s; 0.0 if the hardware lacks it.

        Example:
            >>> from autotuner.catalog.hardware import load_accelerator
            >>> load_accelerator("h100").peak_flop_per_s(Precision.BF16)
            989400000000000.0
        """
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
        """True if the tensor cores themselves multiply by block scales (one scale for each block of values).

        Tensor cores of Blackwell and CDNA 4 do so. They also sum in fp32, and read 8-bit matrices along either
        dimension. Older tensor cores do none of these.
        """
        return Fp8Recipe.MXFP8 in self.fp8_recipes

    def sustained_share_in(self, precision: Precision) -> float:
        """Return the speed of matrix products during training, as a share of their speed in a short benchmark.

        Args:
            precision: Number format of the products.
        """
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
        """The number format whose dense peak is the denominator of MFU; it is the same for all layouts.

        Therefore MFU ranks layouts in the same order as tokens per second. The format of a GPU is bf16, or fp32 if the
        GPU has no bf16. The format of a CPU core is fp32: every core multiplies fp32 at full speed, while some cores
        emulate bf16 slowly and other cores have bf16 units.
        """
        return Precision.FP32 if self.kind == "cpu" or not self.bf16_flop_per_s else Precision.BF16

    @property
    def reference_flop_per_s(self) -> float:
        """The dense peak of the reference precision, in FLOP/s: the denominator of MFU."""
        return self.peak_flop_per_s(self.reference_precision)

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """The number formats in which the hardware can multiply matrices."""
        return tuple(p for p in Precision if self.peak_flop_per_s(p) > 0)
