from __future__ import annotations

from dataclasses import replace

import torch

from autotuner.core.trial_spec import TrialSettings
from autotuner.core.workload import Workload
from tests.builders import cpu_layout, tiny_model
from tests.trials.specs import trial_spec
from trials.training.data import batch
from trials.training.languages import Languages

WORKLOAD = Workload(seq_len=32, global_batch_size=8)
FOUR = Languages(vocab_size=256, num_languages=4)


def words_of(rank: int, num_ranks: int, *, num_languages: int, turn: int = 0) -> set[int]:
    """Which quarters of a vocabulary of 256 a rank reads in a step."""
    layout, settings = cpu_layout(data_parallel_replicate_degree=num_ranks), TrialSettings(num_languages=num_languages)
    spec = replace(trial_spec(layout, model=tiny_model(), workload=WORKLOAD), settings=settings)
    own = batch(spec, step=5, data_parallel_rank=rank, device=torch.device("cpu"), turn=turn)
    return set((own.together().labels_BS // 64).flatten().tolist())


def test_each_rank_reads_a_language_that_no_other_reads() -> None:
    assert [words_of(rank, 4, num_languages=4) for rank in range(4)] == [{0}, {1}, {2}, {3}]


def test_ranks_of_one_replica_share_its_language() -> None:
    assert [words_of(rank, 4, num_languages=2) for rank in range(4)] == [{0, 1}, {0, 1}, {2, 3}, {2, 3}]


def test_in_as_many_turns_each_rank_reads_all() -> None:
    assert set().union(*(words_of(2, 4, num_languages=4, turn=turn) for turn in range(4))) == {0, 1, 2, 3}


def test_a_single_language_is_the_whole_vocabulary() -> None:
    assert words_of(0, 4, num_languages=1) == {0, 1, 2, 3}


def test_languages_part_the_vocabulary_and_leave_no_word_out() -> None:
    three = Languages(vocab_size=256, num_languages=3)
    ends = torch.tensor([0.0, 1 - 1e-12], dtype=torch.float64)
    assert [three.tokens(language, ends).tolist() for language in range(3)] == [[0, 84], [85, 169], [170, 255]]


def test_rows_are_dealt_to_languages_as_evenly_as_can_be() -> None:
    assert [FOUR.of_row(row, 8) for row in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [FOUR.of_row(row, 8, turn=1) for row in range(8)] == [1, 1, 2, 2, 3, 3, 0, 0]
