from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from autotuner.core.choices import BatchBalance
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import LengthDistribution, Workload
from autotuner.training.batches import NO_LABEL
from autotuner.trials.distributed.context import ContextPart
from autotuner.trials.step.data import Batch, as_drawn, batch, sequence_lengths
from tests.builders import cpu_layout, tiny_model
from tests.trials.specs import trial_spec

WORKLOAD = Workload(seq_len=12, global_batch_size=8)
UNEQUAL = replace(WORKLOAD, lengths=LengthDistribution(lengths=(2, 5, 7, 11), weights=(3.0, 1.0, 1.0, 3.0)))
CPU = torch.device("cpu")


def spec_of(workload: Workload = WORKLOAD, *, seed: int = 1, **layout: Any) -> TrialSpec:
    model = tiny_model(vocab_size=50)
    return replace(trial_spec(cpu_layout(**layout), model=model, workload=workload), seed=seed)


def draw(spec: TrialSpec | None = None, *, replica: int = 0, step: int = 0, **changes: Any) -> Batch:
    return batch(spec or spec_of(), step=step, data_parallel_rank=replica, device=CPU, **changes)


def shares(spec: TrialSpec) -> list[Batch]:
    return [draw(spec, replica=replica) for replica in range(spec.layout.data_parallel_degree)]


def sequences_of(batches: list[Batch]) -> list[tuple[int, ...]]:
    """Tokens of all sequences, in any order, without what fills rows."""
    found = []
    for one in (micro_batch for share in batches for micro_batch in share.micro_batches):
        for tokens, labels in zip(one.tokens_BS, one.labels_BS, strict=True):
            cut = one.documents or (len(tokens),)
            for piece, asked in zip(tokens.split(cut), labels.split(cut), strict=True):
                if (asked != NO_LABEL).any():
                    found.append(tuple(piece[asked != NO_LABEL].tolist()))
    return sorted(found)


@pytest.mark.parametrize("num_replicas", [2, 4, 8])
def test_the_slices_of_all_replicas_are_the_global_batch(num_replicas: int) -> None:
    slices = shares(spec_of(data_parallel_replicate_degree=num_replicas))
    assert torch.equal(torch.cat([s.together().tokens_BS for s in slices]), draw().together().tokens_BS)
    assert torch.equal(torch.cat([s.together().labels_BS for s in slices]), draw().together().labels_BS)


def test_context_ranks_hold_the_parts_of_every_sequence_with_the_tokens_that_follow() -> None:
    whole = draw()
    parts = [ContextPart(rank=rank, num_ranks=3) for rank in range(3)]
    for part in parts:
        share, positions = draw(spec_of(context_parallel_degree=3), part=part), part.positions(12)
        assert torch.equal(share.together().tokens_BS, whole.together().tokens_BS[:, positions])
        assert torch.equal(share.together().labels_BS, whole.together().labels_BS[:, positions])


def test_a_label_is_the_token_that_follows_and_micro_batches_are_the_batch_in_order() -> None:
    whole = draw().together()
    assert torch.equal(whole.labels_BS[:, :-1], whole.tokens_BS[:, 1:])
    parts = draw(spec_of(micro_batch_size=2)).micro_batches
    assert torch.equal(torch.cat([one.tokens_BS for one in parts]), whole.tokens_BS)
    assert [len(one.tokens_BS) for one in parts] == [2, 2, 2, 2]


@pytest.mark.parametrize("change", [{"step": 1}, {"spec": spec_of(seed=2)}])
def test_another_step_or_seed_is_another_batch_of_which_no_two_sequences_are_equal(change: dict[str, Any]) -> None:
    drawn = draw().together().tokens_BS
    assert not torch.equal(drawn, draw(**change).together().tokens_BS)
    assert len(torch.unique(drawn, dim=0)) == 8


def test_tokens_lie_in_the_vocabulary_and_low_ones_are_frequent() -> None:
    tokens = torch.cat([draw(step=step).together().tokens_BS for step in range(20)])
    assert int(tokens.min()) == 0
    assert int(tokens.max()) < 50
    assert float((tokens < 25).float().mean()) > 0.7  # 2^(-1/3) = 0.79 is expected, over 1920 draws


@pytest.mark.parametrize("is_packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("balance", BatchBalance, ids=str)
def test_balanced_and_packed_sequences_are_those_of_the_global_batch(balance: BatchBalance, is_packed: bool) -> None:
    one_rank = spec_of(UNEQUAL)
    spec = spec_of(
        UNEQUAL, data_parallel_replicate_degree=2, micro_batch_size=2, batch_balance=balance, sequence_packing=is_packed
    )
    assert sequences_of(shares(spec)) == sequences_of(shares(one_rank))
    assert sorted(map(len, sequences_of(shares(spec)))) == sorted(sequence_lengths(spec, 0))


def test_a_row_is_as_long_as_the_longest_of_its_micro_batch_and_of_one_length_for_stages_of_a_pipeline() -> None:
    spec = spec_of(UNEQUAL, tensor_parallel_degree=2, micro_batch_size=2)
    lengths = sequence_lengths(spec, 0)
    longest = [max(lengths[start : start + 2]) for start in range(0, 8, 2)]
    split = [length + length % 2 for length in longest]  # into as many as there are tensor ranks
    assert [one.tokens_BS.shape[1] for one in draw(spec).micro_batches] == split
    staged = spec_of(UNEQUAL, pipeline_parallel_degree=2, micro_batch_size=2)
    assert draw(staged).together().tokens_BS.shape == (8, 12)


def test_a_packed_row_holds_no_more_than_its_sequences_and_what_tensor_ranks_need() -> None:
    spec = spec_of(UNEQUAL, tensor_parallel_degree=2, micro_batch_size=2, sequence_packing=True)
    lengths = sequence_lengths(spec, 0)
    for start, one in zip(range(0, 8, 2), draw(spec).micro_batches, strict=True):
        total = sum(lengths[start : start + 2])
        assert one.tokens_BS.shape == (1, total + total % 2)
        assert one.documents[:2] == lengths[start : start + 2]
        assert sum(one.documents) == total + total % 2


@pytest.mark.parametrize("workload", [WORKLOAD, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("layout", [{"data_parallel_replicate_degree": 4}, {"context_parallel_degree": 2}], ids=str)
def test_the_shares_of_all_losses_sum_to_the_tokens_of_the_batch(workload: Workload, layout: dict[str, int]) -> None:
    spec = spec_of(workload, **layout)
    num_ranks = spec.layout.context_parallel_degree
    parts = [ContextPart(rank=rank, num_ranks=num_ranks) for rank in range(num_ranks)]
    held = [
        draw(spec, replica=replica, part=part) for replica in range(spec.layout.data_parallel_degree) for part in parts
    ]
    num_tokens = sum(one.num_tokens for share in held for one in share.micro_batches)
    assert num_tokens == sum(sequence_lengths(spec, 0))
    assert sum(share.tokens_per_loss for share in held) == pytest.approx(num_tokens, rel=1e-12)  # fp64


def test_a_trial_counts_the_tokens_that_its_steps_drew() -> None:
    spec = spec_of(UNEQUAL)
    drawn = [sum(sequence_lengths(spec, step)) for step in (3, 4)]
    assert as_drawn(spec, [3]).workload.tokens_per_step == drawn[0]
    assert as_drawn(spec, [3, 4]).workload.tokens_per_step == pytest.approx(sum(drawn) / 2, abs=0.5)  # whole tokens
    assert as_drawn(spec_of(), [3]) == spec_of()
