"""What replicas exchange of their gradients in a step, whichever way they do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypedDict

from torch import Tensor

from trials.replication.sending import Sending


class ReplicatorState(TypedDict):
    """What a rank must keep to go on where it stopped; each replica has its own.

    Attributes:
        residuals: What of the momentum was not sent, in the shapes of the gradients; none where all of it always is.
        num_steps: Exchanges done.
    """

    residuals: list[Tensor]
    num_steps: int


class Replicator(Protocol):
    """Exchanges the gradients that this rank holds with the ranks that hold the same ones of other replicas.

    Attributes:
        payload_bytes: What this rank contributed to the latest exchange, before the collective's own factor.
    """

    payload_bytes: int

    def start(self, gradients: Sequence[Tensor]) -> Sending:
        """Take this replica's gradients and begin to send; they may be freed or changed afterwards."""

    def finish(self) -> list[Tensor]:
        """What the optimizer takes for gradients: fp32, in their shapes and order, the same bits on every replica.

        What was started has to be there: a hook of DDP hears of it before the work may be waited for.
        """

    def state_dict(self) -> ReplicatorState:
        """The state between two steps, in memory of its own."""

    def load_state_dict(self, state: ReplicatorState) -> None:
        """Go on from a state of a replicator of the same tensors."""


BuildReplicator = Callable[[Sequence[Tensor]], Replicator]
"""From tensors of the shapes and on the device of the gradients: ``partial(DemoReplicator, group=group, top_k=8)``."""


def exchanged(replicator: Replicator, gradients: Sequence[Tensor]) -> list[Tensor]:
    """Start and finish, with nothing in between but waiting."""
    sending = replicator.start(gradients)
    if sending is not None:
        sending.wait()
    return replicator.finish()
