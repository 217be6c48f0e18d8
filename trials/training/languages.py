"""Languages of synthetic sequences: what tells whether ranks learn from each other.

Each data-parallel rank reads a language of its own, with words that no other has, so that a rank knows those of the
others only by what these exchange with it. Were all ranks to read the same, one that hears nothing of the others would
train as well, only on fewer tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Languages:
    """Parts of a vocabulary, one for each language.

    Attributes:
        num_languages: 1: all sequences are of the whole vocabulary.
    """

    vocab_size: int
    num_languages: int = 1

    def of_row(self, row: int, num_rows: int, turn: int = 0) -> int:
        """The language of a row of a global batch: neighbouring rows share it, as a rank's do.

        ``turn`` moves every row to the next language, so that in as many turns each rank reads all.
        """
        return (row * self.num_languages // num_rows + turn) % self.num_languages

    def tokens(self, language: int, shares: Tensor) -> Tensor:
        """Tokens of a language for shares from 0 to 1 of its words, low ones more often as words are.

        Nothing else is to be learnt, so that a gate of a hundred steps comes to where little more is.
        """
        first = language * self.vocab_size // self.num_languages
        size = (language + 1) * self.vocab_size // self.num_languages - first
        return first + (size * shares**3).long()
