"""Message: what one pipeline rank sends to another, named so that order never matters."""

from __future__ import annotations

from typing import NamedTuple

_MOST_PARTS = 8
"""Tensors that a stage hands to the next, one of them being when the first was sent; a decoder hands one."""


class Message(NamedTuple):
    """One tensor on its way between neighbouring stages.

    Attributes:
        peer: Pipeline rank at the other end.
        stage: That it is meant for.
        is_gradient: It goes back; else it is an activation.
        micro_batch: From 0.
        part: Which of the tensors that a stage hands on.
    """

    peer: int
    stage: int
    is_gradient: bool
    micro_batch: int
    part: int = 0

    def tag(self, num_micro_batches: int) -> int:
        """A number that no other message of the step between the same two ranks has, on both ends the same."""
        assert self.part < _MOST_PARTS
        return ((2 * self.stage + self.is_gradient) * num_micro_batches + self.micro_batch) * _MOST_PARTS + self.part

    @property
    def stamp(self) -> Message:
        """The message that tells when this one was sent."""
        return self._replace(part=_MOST_PARTS - 1)
