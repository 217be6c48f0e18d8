"""Optimizers, and clipping by the norm of the whole gradient; ``assert_alike`` holds every rank to it in all layouts.

Clipping before the reduction is another function of the batch, so a single process computes what it is compared with
from the gradient of each half of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from autotuner.core.choices import (
    BatchBalance,
    GradientClip,
    GradientSync,
    OptimizerKernel,
    PayloadPrecision,
    PipelineSchedule,
    Precision,
)
from autotuner.core.layout import Layout
from autotuner.core.measuring import averages_in, mean_over_period
from autotuner.core.model import TransformerSpec
from autotuner.core.stages import payload_bytes, steps_per_exchange
from autotuner.core.trial_spec import OptimizerName, OptimizerSettings, TrialSettings
from autotuner.core.workload import LengthDistribution, Workload
from autotuner.trials.distributed.optimizer_shards import ParameterShard
from autotuner.trials.step.data import Languages, batch
from autotuner.trials.step.optimizer import ShardedOptimizer, local_optimizer
from tests.builders import cpu_layout, tiny_model
from tests.trials.agreement import TOLERANCES, Case, Trainer, for_each
from tests.trials.fork_server import ForkServer
from tests.trials.specs import (
    CONTEXT,
    FIVE_STEPS,
    GPT_2,
    PIPELINE,
    SEQUENCE,
    TENSOR,
    THREE_STEPS,
    ZBV,
    ddp,
    fsdp,
    hsdp,
    trial_spec,
    zero,
)

# ---------------------------------------------------------------- languages
WORKLOAD = Workload(seq_len=32, global_batch_size=8)
FOUR = Languages(vocab_size=256, num_languages=4)


def words_of(rank: int, num_ranks: int, *, num_languages: int, turn: int = 0) -> set[int]:
    """Which quarters of a vocabulary of 256 a rank reads in a step."""
    layout, settings = cpu_layout(data_parallel_replicate_degree=num_ranks), TrialSettings(num_languages=num_languages)
    spec = replace(trial_spec(layout, model=tiny_model(), workload=WORKLOAD), settings=settings)
    own = batch(spec, step=5, data_parallel_rank=rank, device=torch.device("cpu"), turn=turn)
    return set((own.together().labels_BS // 64).flatten().tolist())


@pytest.mark.parametrize(
    ("num_languages", "read"),
    [
        (4, [{0}, {1}, {2}, {3}]),
        (2, [{0, 1}, {0, 1}, {2, 3}, {2, 3}]),  # ranks of one replica share its language
        (1, [{0, 1, 2, 3}] * 4),
    ],
)
def test_each_rank_reads_its_share_of_the_languages(num_languages: int, read: list[set[int]]) -> None:
    assert [words_of(rank, 4, num_languages=num_languages) for rank in range(4)] == read


def test_in_as_many_turns_each_rank_reads_all() -> None:
    assert set().union(*(words_of(2, 4, num_languages=4, turn=turn) for turn in range(4))) == {0, 1, 2, 3}


def test_languages_part_the_vocabulary_and_leave_no_word_out() -> None:
    three = Languages(vocab_size=256, num_languages=3)
    ends = torch.tensor([0.0, 1 - 1e-12], dtype=torch.float64)
    assert [three.tokens(language, ends).tolist() for language in range(3)] == [[0, 84], [85, 169], [170, 255]]


def test_rows_are_assigned_to_languages_as_evenly_as_can_be() -> None:
    assert [FOUR.of_row(row, 8) for row in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [FOUR.of_row(row, 8, turn=1) for row in range(8)] == [1, 1, 2, 2, 3, 3, 0, 0]


# ---------------------------------------------------------------- local optimizer
GRADIENT = (1.0, -2.0, 2.0)


def stepped(settings: OptimizerSettings, gradients: int = 1, scale: float = 1.0) -> Tensor:
    """Values 0.5, 0.5, 0.5 after so many equal gradients."""
    held = torch.full((3,), 0.5)
    optimizer = local_optimizer([held], settings, OptimizerKernel.FUSED)
    for _ in range(gradients):
        held.grad = scale * torch.tensor(GRADIENT)
        optimizer.step()
    return held


@pytest.mark.parametrize("weight_decay", [0.0, 0.5])
def test_a_step_of_lamb_is_as_long_as_the_norm_of_the_tensor_times_the_learning_rate(weight_decay: float) -> None:
    """Algorithm 2 of arXiv 1904.00962; weight decay counts into the length."""
    lamb = OptimizerSettings(name=OptimizerName.LAMB, learning_rate=0.1, weight_decay=weight_decay)
    moved = stepped(lamb) - 0.5
    assert moved.norm().item() == pytest.approx(0.1 * 0.5 * 3**0.5, rel=1e-4)  # its epsilon is 1e-6 of an update of 3


def test_madgrad_steps_by_the_cube_root_of_the_summed_squares() -> None:
    """Algorithm 1 of arXiv 2101.11075 with k = 0: x0 - lambda g / cbrt(lambda g^2), of which 1 - momentum counts."""
    madgrad = OptimizerSettings(name=OptimizerName.MADGRAD, learning_rate=0.1, beta1=0.5, weight_decay=0.0)
    gradient = torch.tensor(GRADIENT)
    expected = 0.5 - 0.5 * 0.1 * gradient / (0.1 * gradient**2) ** (1 / 3)
    torch.testing.assert_close(stepped(madgrad), expected, rtol=1e-4, atol=1e-5)  # its epsilon is added twice


@pytest.mark.parametrize("name", OptimizerName)
def test_every_optimizer_goes_down(name: OptimizerName) -> None:
    settings = OptimizerSettings(name=name, learning_rate=0.01, weight_decay=0.0)
    moved = stepped(settings, gradients=3) - 0.5
    assert moved.sign().tolist() == [-1.0, 1.0, -1.0]


# ---------------------------------------------------------------- optimizer
LEARNING_RATE = 0.1


def parameter(dtype: torch.dtype = torch.float32) -> nn.Parameter:
    return nn.Parameter(torch.linspace(-1.0, 1.0, 12).reshape(3, 4).to(dtype))


def settings(learning_rate: float = LEARNING_RATE) -> OptimizerSettings:
    return OptimizerSettings(learning_rate=learning_rate)


def optimizer(held: nn.Parameter, kernel: OptimizerKernel = OptimizerKernel.FUSED) -> ShardedOptimizer:
    return ShardedOptimizer([ParameterShard(held, num_replicas=1)], settings=settings(), kernel=kernel)


def train(held: nn.Parameter, optimizer: ShardedOptimizer, num_steps: int = 3) -> None:
    for _ in range(num_steps):
        held.grad = torch.full_like(held, 0.5) * held.detach()
        optimizer.take_gradients()
        optimizer.step()


@pytest.mark.parametrize("kernel", OptimizerKernel)
def test_every_kernel_is_adamw(kernel: OptimizerKernel) -> None:
    ours, theirs = parameter(), parameter()
    train(ours, optimizer(ours, kernel))
    reference = torch.optim.AdamW([theirs], lr=LEARNING_RATE, foreach=False, fused=False)
    for _ in range(3):
        theirs.grad = 0.5 * theirs.detach()
        reference.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)  # kernels round in another order


def test_a_bf16_parameter_follows_an_fp32_one_that_no_rounding_stops() -> None:
    """A thousandth of a value near 1 is less than its last bf16 digit."""
    held = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    adamw = ShardedOptimizer([ParameterShard(held, num_replicas=1)], settings=settings(1e-3))
    for _ in range(16):
        held.grad = torch.ones_like(held)
        adamw.take_gradients()
        adamw.step()
    assert held.detach().float().tolist() == pytest.approx([0.984] * 4, abs=2**-9)


def test_an_fp32_parameter_is_its_own_master() -> None:
    held = parameter()
    (master,) = (shard.values() for shard in optimizer(held).shards)
    assert master.data_ptr() == held.data_ptr()


def test_after_a_step_neither_the_parameters_nor_the_optimizer_hold_gradients() -> None:
    held = parameter()
    adamw = optimizer(held)
    train(held, adamw, num_steps=1)
    assert held.grad is None
    assert adamw.gradients == []


def test_the_learning_rate_rises_over_the_warm_up() -> None:
    """AdamW's first steps are as long as the learning rate, whatever the gradient's size."""
    held = nn.Parameter(torch.zeros(3))
    warming = OptimizerSettings(learning_rate=0.3, warmup_steps=2, weight_decay=0.0)
    adamw = ShardedOptimizer([ParameterShard(held, num_replicas=1)], settings=warming)
    lengths = []
    for _ in range(4):
        before = held.detach().clone()
        held.grad = torch.ones_like(held)
        adamw.take_gradients()
        adamw.step()
        lengths.append((before - held.detach()).mean().item())
    assert lengths == pytest.approx([0.1, 0.2, 0.3, 0.3], rel=1e-5)  # AdamW's epsilon is 1e-8 of the gradient


# ---------------------------------------------------------------- exchange
FOUR_STEPS = TrialSettings(warmup_steps=0, measured_steps=4, max_gradient_norm=1.0)

TINY = tiny_model()
DEMO: dict[str, Any] = {"gradient_sync": GradientSync.DEMO}
RANDOM: dict[str, Any] = {"gradient_sync": GradientSync.RANDOM, "sync_sign": False}
STRIDING: dict[str, Any] = {"gradient_sync": GradientSync.STRIDING, "sync_sparsity": 4}
DILOCO: dict[str, Any] = {"gradient_sync": GradientSync.DILOCO, "sync_period": 2}
BF16_PAYLOAD: dict[str, Any] = {"payload_precision": PayloadPrecision.BF16}

TWO_LAYERS = replace(GPT_2, name="two-layers", num_layers=2)
CASES: tuple[Case, ...] = (
    (TWO_LAYERS, ddp(2, **DEMO, **PIPELINE, micro_batch_size=2)),  # its table is tied across the stages
    (TWO_LAYERS, hsdp(2, 2, **DILOCO, micro_batch_size=2)),
)
MORE: tuple[Case, ...] = (
    (GPT_2, zero(2, **STRIDING, **ZBV, data_parallel_replicate_degree=2, micro_batch_size=2)),  # tied on one rank
    (GPT_2, ddp(2, **RANDOM, **PIPELINE, **TENSOR, micro_batch_size=2)),
    (TINY, hsdp(2, 2, **RANDOM, **SEQUENCE, **BF16_PAYLOAD, micro_batch_size=2)),
    (TINY, ddp(4, **DEMO, **BF16_PAYLOAD, sync_chunk=512, sync_top_k=8, micro_batch_size=2)),
    (TINY, ddp(2, **DEMO, **SEQUENCE, precision=Precision.BF16, micro_batch_size=2)),
    (TINY, zero(2, **DILOCO, **BF16_PAYLOAD, data_parallel_replicate_degree=2, precision=Precision.BF16)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a rank saw; tensors by their names in the whole model."""

    behind: list[dict[str, Tensor]]
    payload_bytes: list[int]
    num_elements: int
    of_successor: dict[str, Tensor]


def trained(fork_server: ForkServer, folder: Path, model: TransformerSpec, layout: Layout) -> list[Seen]:
    run = fork_server.run(trial_spec(layout, model=model, settings=FOUR_STEPS), folder, task="exchanges")
    return [Seen(**of_rank) for of_rank in run.saved()]


@for_each(CASES, oracle=MORE)
def test_replicas_hold_the_same_bits_behind_each_exchange_and_go_on_from_a_saved_state_as_if_nothing_had_happened(
    fork_server: ForkServer, tmp_path: Path, model: TransformerSpec, layout: Layout
) -> None:
    """So do tensor ranks and stages that hold copies of one tensor: all that has one name is compared."""
    ranks = trained(fork_server, tmp_path, model, layout)
    for step in range(FOUR_STEPS.measured_steps):
        versions = {version for seen in ranks for version in versions_of(seen.behind[step])}
        names = {name for seen in ranks for name in seen.behind[step]}
        assert (len(versions) == len(names)) == averages_in(step, steps_per_exchange(layout))
    assert all(versions_of(seen.of_successor) == versions_of(seen.behind[-1]) for seen in ranks)


def versions_of(parameters: dict[str, Tensor]) -> set[tuple[str, bytes]]:
    """Each with all its bits."""
    return {(name, value.contiguous().view(torch.uint8).numpy().tobytes()) for name, value in parameters.items()}


@for_each(
    [(TINY, ddp(2, **DEMO, **BF16_PAYLOAD, micro_batch_size=2))], oracle=[case for case in MORE if case[0] is TINY]
)
def test_a_rank_contributes_as_many_bytes_as_the_formula_says(
    fork_server: ForkServer, tmp_path: Path, model: TransformerSpec, layout: Layout
) -> None:
    for seen in trained(fork_server, tmp_path, model, layout):
        steps = range(FOUR_STEPS.measured_steps)
        sent_bytes = mean_over_period(steps, seen.payload_bytes, steps_per_exchange(layout))
        # the last chunk of each tensor is filled up, and a norm of so small a model is one chunk
        assert sent_bytes == pytest.approx(payload_bytes(layout, seen.num_elements, 4), rel=0.05)


def test_replicas_that_exchange_nothing_diverge(fork_server: ForkServer, tmp_path: Path) -> None:
    """The other tests would pass where every replica saw the whole batch."""
    never = ddp(2, **{**DILOCO, "sync_period": 5}, micro_batch_size=2)
    first, second = (versions_of(seen.behind[-1]) for seen in trained(fork_server, tmp_path, TINY, never))
    assert not first & second


def test_a_trial_measures_and_profiles_until_it_has_seen_an_average_of_parameters(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    layout = ddp(2, **{**DILOCO, "sync_period": 9}, micro_batch_size=4)
    run = fork_server.run(trial_spec(layout, settings=replace(THREE_STEPS, profiled_steps=1)), tmp_path)
    measured = run.measurement
    assert (measured.num_warmup_steps, measured.num_steps) == (1, 8)  # the ninth step averages
    assert measured.sync_payload_bytes == 4 * TINY.num_parameters / 9
    assert measured.breakdown is not None
    assert measured.breakdown.all_reduce_s > 0


@pytest.mark.oracle
def test_tokens_of_unequal_sequences_count_alike_beside_an_exchange_that_loses_nothing(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    lengths = LengthDistribution(lengths=(5, 12, 20, 32), weights=(3.0, 2.0, 2.0, 1.0))
    workload = Workload(seq_len=32, global_batch_size=8, lengths=lengths)
    lossless = {"gradient_sync": GradientSync.STRIDING, "sync_sparsity": 1, "sync_sign": False}
    dealt = {"sequence_packing": True, "batch_balance": BatchBalance.SNAKE}
    layouts = [ddp(2, **changes, micro_batch_size=2) for changes in ({}, lossless, {**lossless, **dealt})]
    runs = [
        fork_server.run(trial_spec(layout, workload=workload, settings=THREE_STEPS), tmp_path / str(number))
        for number, layout in enumerate(layouts)
    ]
    summed, *exchanged = ([step.loss for step in run.steps] for run in runs)
    assert len(summed) == 3
    for losses in exchanged:
        assert losses == pytest.approx(summed, rel=1e-5)  # sums in another order, as in ``TOLERANCES``


# ---------------------------------------------------------------- clip

MAX_NORM = 0.1
"""Far below the norm of the first steps, some 2: every step is clipped."""

TIED = tiny_model(name="tied", tied_embeddings=True)
TWO_TIED = replace(TIED, name="two-tied", num_layers=2)
UNCOMPRESSED: dict[str, Any] = {"gradient_sync": GradientSync.STRIDING, "sync_sparsity": 1, "sync_sign": False}
"""Replicas exchange all of what each has clipped by itself."""
PRE: dict[str, Any] = {"gradient_clip": GradientClip.PRE}
BUCKET: dict[str, Any] = {"gradient_clip": GradientClip.BUCKET}
SMALL: dict[str, Any] = {"gradient_bucket_bytes": 2**14}
EACH_ITS_OWN: dict[str, Any] = {"gradient_bucket_bytes": 1}
"""Every parameter is a bucket, so that their number is known."""
GPIPE: dict[str, Any] = {**PIPELINE, "pipeline_schedule": PipelineSchedule.GPIPE}
ADAPTIVE: dict[str, Any] = {**PIPELINE, "pipeline_schedule": PipelineSchedule.ADAPTIVE}

ON_STAGES = (tiny_model(), zero(2, **ZBV, micro_batch_size=2))
ON_ALL_AXES = (tiny_model(), fsdp(2, **SEQUENCE, **PIPELINE, micro_batch_size=2))


def clipping(max_norm: float, layout: Layout, model: TransformerSpec | None = None) -> Any:
    settings = replace(THREE_STEPS, max_gradient_norm=max_norm)
    return trial_spec(layout, model=model or tiny_model(), settings=settings)


@for_each([ON_STAGES], oracle=[ON_ALL_AXES])
def test_a_clipped_run_has_the_losses_of_a_clipped_single_process(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    settings = replace(FIVE_STEPS, max_gradient_norm=MAX_NORM)
    layouts = (cpu_layout(micro_batch_size=8), layout)
    whole, spread = (trainer.train(trial_spec(each, model=model, settings=settings)).losses for each in layouts)
    assert spread == pytest.approx(whole, rel=TOLERANCES[layout.precision].loss)
    assert whole != trainer.alone(layout, model).losses


@for_each(
    [
        (tiny_model(), ddp(2, **BUCKET, **SMALL, micro_batch_size=2)),
        (TWO_TIED, ddp(2, **PRE, **PIPELINE, **TENSOR, micro_batch_size=2)),
    ],
    oracle=[
        (tiny_model(), ddp(2, **PRE, micro_batch_size=2)),
        (tiny_model(), ddp(2, **BUCKET, **CONTEXT, micro_batch_size=2)),
        (tiny_model(), ddp(2, **BUCKET, precision=Precision.BF16, fp32_gradient_reduce=True, micro_batch_size=2)),
        (tiny_model(), zero(2, **PRE, **SMALL, micro_batch_size=2)),
        (tiny_model(), zero(2, **BUCKET, **SMALL, data_parallel_replicate_degree=2, micro_batch_size=1)),
        (TIED, ddp(2, **BUCKET, **PIPELINE, micro_batch_size=1)),
        (TIED, ddp(2, **BUCKET, **SEQUENCE, micro_batch_size=2)),
        (TIED, ddp(2, **PRE, **ZBV, micro_batch_size=1)),
        (TIED, ddp(2, **BUCKET, **ZBV, micro_batch_size=1)),
        (tiny_model(), ddp(2, **BUCKET, **ADAPTIVE, micro_batch_size=1)),
        (tiny_model(), zero(2, **BUCKET, **GPIPE, **TENSOR, micro_batch_size=2)),
    ],
)
def test_gradients_below_the_norm_train_as_in_a_single_process(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    found = trainer.train(clipping(1e6, layout, model))
    trainer.assert_equal(found, layout, model)


class Halves:
    """What a single process says of two replicas that see half of the batch each."""

    def __init__(self, fork_server: ForkServer, folder: Path, model: TransformerSpec) -> None:
        run = fork_server.run(trial_spec(cpu_layout(micro_batch_size=8), model=model), folder, task="halves")
        self._own: list[dict[str, Tensor]] = run.saved()[0]

    def clipped_whole(self) -> dict[str, Tensor]:
        return self._mean([_scaled(own.values(), MAX_NORM) for own in self._own])

    def clipped_by_tensor(self) -> dict[str, Tensor]:
        bound = MAX_NORM / math.sqrt(len(self._own[0]))
        clipped = [{name: _scaled([one], bound) * one for name, one in own.items()} for own in self._own]
        return {name: (clipped[0][name] + clipped[1][name]) / 2 for name in clipped[0]}

    def _mean(self, scales: list[float]) -> dict[str, Tensor]:
        first, second = self._own
        return {name: (scales[0] * first[name] + scales[1] * second[name]) / 2 for name in first}


def _scaled(gradients: Iterable[Tensor], max_norm: float) -> float:
    return min(1.0, max_norm / math.sqrt(sum(float(one.double().norm()) ** 2 for one in gradients)))


def assert_close(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    assert set(found) == set(expected)
    scale = max(float(gradient.norm()) for gradient in expected.values())
    for name, gradient in expected.items():
        # sums in another order, as of ``TOLERANCES``; a tensor that is zero but for rounding by the largest
        assert float((found[name] - gradient).norm()) <= 1e-5 * (float(gradient.norm()) + 1e-3 * scale), name


@pytest.fixture(scope="module")
def halves(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Halves:
    return Halves(fork_server, tmp_path_factory.mktemp("halves"), tiny_model())


@pytest.fixture(scope="module")
def tied_halves(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Halves:
    return Halves(fork_server, tmp_path_factory.mktemp("tied-halves"), TIED)


@for_each(
    [(tiny_model(), ddp(2, **PRE, **SMALL, micro_batch_size=2))],
    oracle=[
        (tiny_model(), zero(2, **PRE, **SMALL, micro_batch_size=2)),
        (tiny_model(), ddp(2, **PRE, **SEQUENCE, micro_batch_size=2)),
        (tiny_model(), ddp(2, **PRE, **PIPELINE, micro_batch_size=2)),
        (TIED, ddp(2, **PRE, **PIPELINE, micro_batch_size=2)),
        (TIED, zero(2, **PRE, **ZBV, micro_batch_size=2)),
        (TIED, ddp(2, **PRE, **TENSOR, **PIPELINE, micro_batch_size=2)),
        (tiny_model(), ddp(2, **UNCOMPRESSED, micro_batch_size=2)),
        (tiny_model(), hsdp(2, 2, **UNCOMPRESSED, **TENSOR, micro_batch_size=2)),
        (TIED, ddp(2, **UNCOMPRESSED, **PIPELINE, micro_batch_size=2)),
        (TIED, zero(2, **UNCOMPRESSED, **ZBV, data_parallel_replicate_degree=2, micro_batch_size=2)),
    ],
)
def test_each_replica_clips_its_own_gradient_whole(
    model: TransformerSpec, layout: Layout, trainer: Trainer, halves: Halves, tied_halves: Halves
) -> None:
    found = trainer.train(clipping(MAX_NORM, layout, model))
    assert_close(found.gradients, (tied_halves if model is TIED else halves).clipped_whole())


@for_each(
    [(tiny_model(), ddp(2, **BUCKET, **EACH_ITS_OWN, micro_batch_size=2))],
    oracle=[
        (tiny_model(), zero(2, **BUCKET, **EACH_ITS_OWN, micro_batch_size=2)),
        (tiny_model(), ddp(2, **BUCKET, **EACH_ITS_OWN, **PIPELINE, micro_batch_size=2)),
        (tiny_model(), ddp(2, **BUCKET, **EACH_ITS_OWN, **ZBV, micro_batch_size=2)),
    ],
)
def test_each_bucket_of_the_whole_model_is_clipped_to_its_part_of_the_norm(
    model: TransformerSpec, layout: Layout, trainer: Trainer, halves: Halves
) -> None:
    found = trainer.train(clipping(MAX_NORM, layout, model))
    assert_close(found.gradients, halves.clipped_by_tensor())


@for_each(
    [(TWO_TIED, ddp(2, **BUCKET, **SMALL, **TENSOR, micro_batch_size=4))],
    oracle=[
        (TIED, ddp(2, **BUCKET, **EACH_ITS_OWN, **SEQUENCE, **PIPELINE, micro_batch_size=2)),
        (TIED, ddp(2, **BUCKET, **EACH_ITS_OWN, **ZBV, micro_batch_size=2)),
        (tiny_model(), zero(2, **BUCKET, **SMALL, **SEQUENCE, micro_batch_size=4)),
        (tiny_model(), ddp(2, **BUCKET, **SMALL, **CONTEXT, micro_batch_size=4)),
    ],
)
def test_bounded_buckets_keep_the_whole_norm_and_equal_copies_on_all_ranks(
    model: TransformerSpec, layout: Layout, fork_server: ForkServer, tmp_path: Path
) -> None:
    saved = fork_server.run(clipping(MAX_NORM, layout, model), tmp_path, task="training").saved()
    # fp32 keeps 7 digits of the bound; gradients this far above it fill their buckets, tied copies up to half of two
    assert all(of_rank["norm"] <= MAX_NORM * (1 + 1e-6) for of_rank in saved)
    last: dict[str, Tensor] = {}
    for of_rank in saved:
        for name, value in of_rank["last"].items():
            assert torch.equal(last.setdefault(name, value), value), name
