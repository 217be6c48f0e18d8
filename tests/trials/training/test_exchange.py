"""What replicas exchange in the place of gradients, on real ranks.

That an exchange which loses nothing trains as one process does is held by ``tests.oracle``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from autotuner.core.choices import BatchBalance, GradientSync, PayloadPrecision, Precision
from autotuner.core.layout import Layout
from autotuner.core.measuring import averages_in, mean_over_period
from autotuner.core.model import TransformerSpec
from autotuner.core.stages import payload_bytes, steps_per_exchange
from autotuner.core.trial_spec import TrialSettings
from autotuner.core.workload import LengthDistribution, Workload
from tests.builders import tiny_model
from tests.trials.agreement import Case, for_each
from tests.trials.specs import GPT_2, PIPELINE, SEQUENCE, TENSOR, THREE_STEPS, ZBV, ddp, hsdp, trial_spec, zero
from tests.trials.zygote import Zygote

FOUR_STEPS = TrialSettings(warmup_steps=0, measured_steps=4, max_gradient_norm=1.0)

TINY = tiny_model()
DEMO: dict[str, Any] = {"gradient_sync": GradientSync.DEMO}
RANDOM: dict[str, Any] = {"gradient_sync": GradientSync.RANDOM, "sync_sign": False}
STRIDING: dict[str, Any] = {"gradient_sync": GradientSync.STRIDING, "sync_sparsity": 4}
DILOCO: dict[str, Any] = {"gradient_sync": GradientSync.DILOCO, "sync_period": 2}
BF16_PAYLOAD: dict[str, Any] = {"payload_precision": PayloadPrecision.BF16}

CASES: tuple[Case, ...] = (
    (GPT_2, ddp(2, **DEMO, **PIPELINE, micro_batch_size=2)),  # its table is tied across the stages
    (GPT_2, hsdp(2, 2, **DILOCO, micro_batch_size=2)),
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


def trained(zygote: Zygote, folder: Path, model: TransformerSpec, layout: Layout) -> list[Seen]:
    run = zygote.run(trial_spec(layout, model=model, settings=FOUR_STEPS), folder, task="exchanges")
    assert set(run.exit_codes) == {0}, run.logs
    return [Seen(**torch.load(folder / f"{rank}.pt")) for rank in range(layout.world_size)]


@for_each(CASES, oracle=MORE)
def test_replicas_hold_the_same_bits_behind_each_exchange_and_go_on_from_a_saved_state_as_if_nothing_had_happened(
    zygote: Zygote, tmp_path: Path, model: TransformerSpec, layout: Layout
) -> None:
    """So do tensor ranks and stages that hold copies of one tensor: all that has one name is compared."""
    ranks = trained(zygote, tmp_path, model, layout)
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
    zygote: Zygote, tmp_path: Path, model: TransformerSpec, layout: Layout
) -> None:
    for seen in trained(zygote, tmp_path, model, layout):
        steps = range(FOUR_STEPS.measured_steps)
        sent_bytes = mean_over_period(steps, seen.payload_bytes, steps_per_exchange(layout))
        # the last chunk of each tensor is filled up, and a norm of so small a model is one chunk
        assert sent_bytes == pytest.approx(payload_bytes(layout, seen.num_elements, 4), rel=0.05)


def test_what_replicas_do_not_exchange_keeps_them_apart(zygote: Zygote, tmp_path: Path) -> None:
    """The other tests would pass where every replica saw the whole batch."""
    never = ddp(2, **{**DILOCO, "sync_period": 5}, micro_batch_size=2)
    first, second = (versions_of(seen.behind[-1]) for seen in trained(zygote, tmp_path, TINY, never))
    assert not first & second


def test_a_trial_measures_and_profiles_until_it_has_seen_an_average_of_parameters(
    zygote: Zygote, tmp_path: Path
) -> None:
    layout = ddp(2, **{**DILOCO, "sync_period": 9}, micro_batch_size=4)
    run = zygote.run(trial_spec(layout, settings=replace(THREE_STEPS, profiled_steps=1)), tmp_path)
    measured = run.measurement
    assert (measured.num_warmup_steps, measured.num_steps) == (1, 8)  # the ninth step averages
    assert measured.sync_payload_bytes == 4 * TINY.num_parameters / 9
    assert measured.breakdown is not None
    assert measured.breakdown.all_reduce_s > 0


@pytest.mark.oracle
def test_tokens_of_unequal_sequences_count_alike_beside_an_exchange_that_loses_nothing(
    zygote: Zygote, tmp_path: Path
) -> None:
    lengths = LengthDistribution(lengths=(5, 12, 20, 32), weights=(3.0, 2.0, 2.0, 1.0))
    workload = Workload(seq_len=32, global_batch_size=8, lengths=lengths)
    lossless = {"gradient_sync": GradientSync.STRIDING, "sync_sparsity": 1, "sync_sign": False}
    dealt = {"sequence_packing": True, "batch_balance": BatchBalance.SNAKE}
    layouts = [ddp(2, **changes, micro_batch_size=2) for changes in ({}, lossless, {**lossless, **dealt})]
    runs = [
        zygote.run(trial_spec(layout, workload=workload, settings=THREE_STEPS), tmp_path / str(number))
        for number, layout in enumerate(layouts)
    ]
    summed, *exchanged = ([step.loss for step in run.steps] for run in runs)
    assert len(summed) == 3
    for losses in exchanged:
        assert losses == pytest.approx(summed, rel=1e-5)  # sums in another order, as in ``TOLERANCES``
