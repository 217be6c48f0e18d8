"""BalancedBatchSampler: batches of a data set whose sequences differ in length, dealt evenly to data-parallel ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from torch.utils.data import Sampler

from autotuner.batches.dealing import dealt, strata
from autotuner.core.choices import BatchBalance
from autotuner.core.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealing:
    """How the sequences of a global batch are dealt.

    Attributes:
        num_ranks: Data-parallel ranks.
        num_dealing_ranks: Neighbours that deal among each other, such as those of a node; it divides ``num_ranks``.
    """

    num_ranks: int
    balance: BatchBalance = BatchBalance.STRATIFIED_SNAKE
    num_dealing_ranks: int = 1


class BalancedBatchSampler(Sampler[list[int]]):
    """The batches of one rank, for ``DataLoader(batch_sampler=...)``.

    All ranks shuffle alike and each deals the whole batch, so that none asks another. What dealing leaves alone is the
    batch: every epoch, the ranks together read the same global batches, whatever the balance. Sequences that make no
    whole global batch are left out, others in every epoch.
    """

    def __init__(
        self, lengths: Sequence[int], *, batch_size: int, dealing: Dealing, rank: int = 0, seed: int = 0
    ) -> None:
        """Batches of ``batch_size`` sequences for a rank, of a data set whose sequences have these many tokens.

        Raises:
            InvalidInput: The rank is none of the dealing's, or the data set holds no global batch.
        """
        super().__init__()
        if not 0 <= rank < dealing.num_ranks:
            raise InvalidInput("rank", rank, f"must be one of the {dealing.num_ranks} that are dealt to", 0)
        self._global_size = batch_size * dealing.num_ranks
        if not 0 < self._global_size <= len(lengths):
            rule = f"must be 1 or more for each of {dealing.num_ranks} ranks, of {len(lengths)} sequences"
            raise InvalidInput("batch_size", batch_size, rule, max(1, len(lengths) // dealing.num_ranks))
        self._lengths = lengths
        self._dealing = dealing
        self._rank = rank
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Shuffle otherwise than in other epochs; on every rank, before iterating."""
        self._epoch = epoch

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self._lengths) // self._global_size

    def __iter__(self) -> Iterator[list[int]]:
        """Positions in the data set, a list for each batch, in the order in which micro-batches should take them."""
        order = list(range(len(self._lengths)))
        Random(f"{self._seed}/{self._epoch}").shuffle(order)  # a string is hashed alike everywhere
        bounds = strata(max(self._lengths))
        for number in range(len(self)):
            of_all = order[number * self._global_size : (number + 1) * self._global_size]
            hands = dealt(
                [self._lengths[position] for position in of_all],
                num_ranks=self._dealing.num_ranks,
                balance=self._dealing.balance,
                num_dealing_ranks=self._dealing.num_dealing_ranks,
                bounds=bounds,
            )
            yield [of_all[place] for place in hands[self._rank]]
