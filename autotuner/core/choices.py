"""Choices: the words that an option of a layout may have as a value. Each word has an integer."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from functools import cache
from typing import Any, Self

from autotuner.core.value import require_one_of


class Choice(IntEnum):
    """An option value that is both an integer, for columns of numbers, and a word (``label``), for people.

    A rule or a formula compares a field with a member (``layout.recompute == Recompute.FULL``). Because members are
    integers, the same line works on one layout and on a numpy column of layouts. JSON, SQL and people see ``label``.
    """

    label: str

    def __new__(cls, value: int, label: str) -> Self:  # noqa: D102  # the docstring of the class explains it
        member = int.__new__(cls, value)
        member._value_ = value
        member.label = label
        return member

    def __str__(self) -> str:
        return self.label

    @classmethod
    def labels(cls) -> tuple[str, ...]:
        """Return the words of all members, in the order of their integers."""
        return tuple(member.label for member in cls)

    @classmethod
    def from_label(cls, label: object, field: str = "") -> Self:
        """Return the member whose word (``label``) is the given one.

        Args:
            label: The word.
            field: Name of the field, for the error message; empty: the name of the class.

        Raises:
            InvalidInput: No member has the word. The error lists all words.

        Example:
            >>> Recompute.from_label("full") == Recompute.FULL
            True
            >>> Recompute.labels()
            ('none', 'selective', 'full')
        """
        by_label = _by_label(cls)
        require_one_of(field or cls.__name__, label, tuple(by_label))
        member: Self = by_label[label]
        return member


@cache
def _by_label(cls: type[Choice]) -> Mapping[Any, Any]:
    """Return the members of a class by their words."""
    return {member.label: member for member in cls}


class PipelineSchedule(Choice):
    """The pipeline schedule: the order in which a pipeline rank runs forward and backward passes, such as ``1f1b``."""

    GPIPE = 0, "gpipe"
    ONE_F_ONE_B = 1, "1f1b"
    INTERLEAVED_1F1B = 2, "interleaved_1f1b"
    ZERO_BUBBLE = 3, "zero_bubble"  # ZB-H1 of arXiv 2401.10241 with one stage per rank; interleaved with several
    ZBV = 4, "zbv"  # two stages per rank in a V, arXiv 2405.15362
    DUALPIPEV = 5, "dualpipev"  # the V half of arXiv 2412.19437's DualPipe: two micro-batches' passes at once
    ADAPTIVE = 6, "adaptive"  # zero bubbles with a warm-up planned around slow links, arXiv 2504.19232


class ShardLevel(Choice):
    """The training state that the data-parallel shard group splits: none, optimizer, gradients or parameters.

    Each level (ZeRO 0, 1, 2, 3; arXiv 1910.02054) also splits the state of the levels before it.
    """

    NONE = 0, "none"
    OPTIMIZER = 1, "optimizer"
    GRADIENTS = 2, "gradients"
    PARAMETERS = 3, "parameters"


class Recompute(Choice):
    """The activations that are not kept but computed again in the backward pass (arXiv 2205.05198)."""

    NONE = 0, "none"
    SELECTIVE = 1, "selective"  # the stack decides: the attention core, or everything except matrix products
    FULL = 2, "full"  # every layer, from its input


class AttentionKernel(Choice):
    """The kernel that computes scaled dot-product attention, such as FlashAttention-2 (``flash``)."""

    MATH = 0, "math"  # two batched products; scale, mask and softmax each pass over the scores
    EFFICIENT = 1, "efficient"  # xformers
    FLASH = 2, "flash"  # FlashAttention-2, arXiv 2307.08691
    FUSED_SOFTMAX = 3, "fused_softmax"  # two batched products around Megatron's scale-mask-softmax kernel
    FLASH_1 = 4, "flash_1"  # arXiv 2205.14135
    FLASH_3 = 5, "flash_3"  # Hopper only, arXiv 2407.08608
    CUDNN = 6, "cudnn"  # cuDNN's fused attention, as SDPA calls it
    FLEX = 7, "flex"  # FlexAttention, compiled; arXiv 2412.05496


class Precision(Choice):
    """The number format in which matrices are multiplied, such as ``bf16`` or ``fp8``."""

    FP32 = 0, "fp32"
    BF16 = 1, "bf16"
    FP8 = 2, "fp8"
    FP8_EMULATED = 3, "fp8_emulated"  # fp8 values multiplied in bf16: shows the losses of fp8, never its speed
    NVFP4 = 4, "nvfp4"  # 4 bits, an fp8 scale for every 16 values and one per tensor; arXiv 2509.25149


FP8_PRECISIONS = (Precision.FP8, Precision.FP8_EMULATED)
"""Formats that round the operands of matrix products to fp8."""

NARROW_PRECISIONS = (*FP8_PRECISIONS, Precision.NVFP4)
"""Formats that round the operands of matrix products to 8 bits or fewer."""


class Fp8Recipe(Choice):
    """The method of scaling values to fp8: which values share a scale, and from which values the scale is computed."""

    TENSORWISE = 0, "tensorwise"  # one per tensor, of its own largest value: current scaling
    ROWWISE = 1, "rowwise"  # one per row of each operand
    DELAYED = 2, "delayed"  # one per tensor, of the largest values of earlier steps; arXiv 2209.05433 section 3
    BLOCKWISE = 3, "blockwise"  # 1 x 128 values, and 128 x 128 of weights; arXiv 2412.19437 section 3.3.2
    MXFP8 = 4, "mxfp8"  # 32 values share a power of two, which the tensor cores apply; arXiv 2310.10537


class ContextExchange(Choice):
    """The way in which ranks that split a sequence exchange keys and values: ring, all-gather or all-to-all.

    With ``all_to_all``, they exchange parts of the sequence for attention heads, and back.
    """

    RING = 0, "ring"  # keys and values are sent around a ring, arXiv 2310.01889
    ALL_GATHER = 1, "all_gather"  # every rank gets all keys and values, arXiv 2407.21783 section 3.3.2
    ALL_TO_ALL = 2, "all_to_all"  # heads for sequence and back, arXiv 2309.14509


class OptimizerKernel(Choice):
    """The kernels that run the AdamW update: one for all operations (``fused``), or one per operation (``foreach``)."""

    FUSED = 0, "fused"  # one kernel for all elements and operations
    FOREACH = 1, "foreach"  # one kernel per operation, over lists of tensors


class CollectiveAlgorithm(Choice):
    """The algorithm of an all-reduce, such as a ring, or ``auto`` if the communication library chooses.

    The library always chooses the algorithms of all-gathers and reduce-scatters.
    """

    AUTO = 0, "auto"  # the library chooses for each size
    RING = 1, "ring"
    TREE = 2, "tree"  # NCCL: two trees between nodes, a chain inside each
    NVLS = 3, "nvls"  # the node's switches add (NVLink SHARP), trees between nodes
    COLLNET = 4, "collnet"  # the network's switches add (InfiniBand SHARP)


class CollectiveHierarchy(Choice):
    """The number of levels of a collective among data-parallel ranks: one (``flat``) or two (``two_level``).

    A collective with two levels runs inside each node, then between nodes with a part of the bytes, and then inside
    each node again.
    """

    FLAT = 0, "flat"  # one collective among all
    TWO_LEVEL = 1, "two_level"  # inside nodes, then between nodes with a part of the bytes, then inside nodes again


class CollectiveProtocol(Choice):
    """The NCCL protocol, which decides how a rank learns that data has arrived."""

    AUTO = 0, "auto"  # NCCL chooses for each size
    LL = 1, "ll"  # a flag in every 8 bytes: the lowest latency, a quarter of the bandwidth
    LL128 = 2, "ll128"  # a flag in every 128 bytes, which must arrive in one piece
    SIMPLE = 3, "simple"  # a barrier after each chunk: the full bandwidth


class P2PTransport(Choice):
    """The process that sends data to the next pipeline stage and gradients back: the rank or a helper process."""

    INLINE = 0, "inline"  # the rank itself, in the order of its passes: a slow send delays everything after it
    DELEGATED = 1, "delegated"  # other processes, from the host's memory, arXiv 2504.19232


class RankOrder(Choice):
    """The order of the axes of parallelism in rank numbers: pipeline stages outermost, or replicas outermost.

    The ranks along the outermost axis have the most distant numbers, so that they usually lie on different nodes.
    """

    STAGES_OUTERMOST = 0, "stages_outermost"  # pipelines cross nodes, replicas stay close
    REPLICAS_OUTERMOST = 1, "replicas_outermost"  # each replica's stages stay close, replicas cross nodes


class RankPlacement(Choice):
    """The rule that places ranks on nodes by their numbers; the names are those of Slurm's ``--distribution``."""

    BLOCK = 0, "block"  # a node is filled before the next
    CYCLIC = 1, "cyclic"  # one to each node in turn, so that neighbours lie on different nodes


class GradientSync(Choice):
    """The data that data-parallel replicas exchange, and how often: whole gradients in each step (``full``), or less.

    All members except ``FULL`` are lossy: they are not numerically equivalent to plain training. They send parts of a
    momentum in each step, or parameters every few steps.
    """

    FULL = 0, "full"  # every gradient, every step
    DEMO = 1, "demo"  # the largest cosine components of a momentum that each keeps, arXiv 2411.19870
    RANDOM = 2, "random"  # momentum elements that a shared seed draws, arXiv 2502.06728
    STRIDING = 3, "striding"  # momentum elements at equal distances, others every step, arXiv 2502.06728
    DILOCO = 4, "diloco"  # parameters, every so many steps of its own, arXiv 2311.08105


MOMENTUM_SYNCS = (GradientSync.DEMO, GradientSync.RANDOM, GradientSync.STRIDING)
"""Gradient exchanges that send a part of the momentum. Each replica keeps the rest."""


class PayloadPrecision(Choice):
    """The number format of the data that replicas send in lossy exchanges (every ``GradientSync`` but ``FULL``)."""

    FP32 = 0, "fp32"
    BF16 = 1, "bf16"


class GradientClip(Choice):
    """The gradient that is clipped to a maximum norm: the averaged one, or each replica's own before the reduction.

    The choice also decides when the reduction may start. The settings of a trial state the maximum norm.
    """

    POST = 0, "post"  # the averaged one: behind its reduction
    PRE = 1, "pre"  # each replica's own, whole: the reduction waits for the last backward pass
    BUCKET = 2, "bucket"  # each replica's own, bucket by bucket as they fill, arXiv 2402.02447


class BatchBalance(Choice):
    """The method that assigns sequences of different lengths to data-parallel ranks, so that ranks have equal work."""

    NONE = 0, "none"  # as they come
    STRATIFIED = 1, "stratified"  # to each rank as many of each range of lengths, arXiv 2402.02447
    SNAKE = 2, "snake"  # among the ranks of a group by length, to and fro, arXiv 2402.02447
    STRATIFIED_SNAKE = 3, "stratified_snake"  # both
    GLOBAL_SORT = 4, "global_sort"  # among all ranks by length, to and fro


class ExportLauncher(StrEnum):
    """The programs that can start a trainer with an exported layout."""

    TORCHRUN = "torchrun"  # a shell script for each node
    SBATCH = "sbatch"  # a Slurm job
    KUBERNETES = "kubernetes"  # a Job with a pod for each node


class ExportFormat(StrEnum):
    """The formats that a layout can be exported to, such as arguments of Megatron-LM or a JSON file of DeepSpeed."""

    MEGATRON_LM = "megatron-lm"  # command-line arguments
    MEGATRON_BRIDGE = "megatron-bridge"  # section.field=value overrides of a recipe
    NEMO = "nemo"  # the same of NeMo 2
    TORCHTITAN = "torchtitan"  # TOML, as far as 0.2
    TORCHTITAN_CONFIG = "torchtitan-config"  # a Python module, from 0.3
    DEEPSPEED = "deepspeed"  # ds_config.json
    ACCELERATE = "accelerate"  # YAML of ``accelerate launch``
    TRANSFORMERS = "transformers"  # arguments of Hugging Face's Trainer
    TORCHRUN = "torchrun"  # a shell script that starts our own trial
    SBATCH = "sbatch"  # the same for Slurm
    ARGUMENTS = "arguments"  # --tensor-parallel-degree 2 ...: for a training loop of one's own

    @property
    def is_of_a_trainer(self) -> bool:
        """True if the format configures a trainer; False if it is a script that starts this product's own trial job."""
        return self not in (ExportFormat.TORCHRUN, ExportFormat.SBATCH)
