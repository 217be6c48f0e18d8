"""SwitchedTransport: the rank itself sends while its links work; when a link fails, delegates send.

When an inline send or receive fails, both ranks of that link notice, because it breaks on both sides. Through delegates
they exchange which messages of this step have arrived, and delegates send the rest. Nothing is computed twice, and no
other rank is involved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import torch
from torch import Tensor

from autotuner.training.pipelines.channels import Channel
from autotuner.training.pipelines.delegated import DelegatedTransport
from autotuner.training.pipelines.inline import InlineTransport
from autotuner.training.pipelines.transport import Arrival, LinkConditions, LinkDead, Message

Reconnect = Callable[[int, int], Channel]
"""A function that makes a new channel to a pipeline rank. Its second argument counts the attempts."""


class SwitchedTransport:
    """A transport in which either the rank itself sends, or its delegates (other processes) send for it.

    This can change between steps. If a link is dead, delegates always carry its messages. Messages that the rank itself
    sent are kept until the end of the step, because only the receiving rank knows whether they have arrived. A link can
    be dead because an emulated condition cut it. When the condition ends, ``reconnect`` makes a new channel for the
    link. Without ``reconnect``, the link stays dead.
    """

    def __init__(
        self,
        inline: InlineTransport,
        delegated: DelegatedTransport,
        num_stages: int,
        *,
        is_delegated: bool = False,
        reconnect: Reconnect | None = None,
    ) -> None:
        self._inline, self._delegated = inline, delegated
        self._num_stages = num_stages
        self._is_delegated = is_delegated
        self._reconnect = reconnect
        self._num_reconnects: dict[int, int] = {}
        self._bridged: set[int] = set()
        self._by_condition: set[int] = set()
        self._expected: dict[Message, Tensor] = {}
        self._kept: dict[Message, Tensor] = {}
        self._coming: dict[Message, Arrival] = {}
        self._came: set[Message] = set()

    @property
    def conditions(self) -> LinkConditions:
        """The emulated conditions of links (delay, bandwidth) for the messages of the next step."""
        return self._inline.conditions

    @conditions.setter
    def conditions(self, conditions: LinkConditions) -> None:
        self._inline.conditions = self._delegated.conditions = conditions

    @property
    def is_delegated(self) -> bool:
        """True if delegates (processes that send for this rank) send all messages of the next step, over every link."""
        return self._is_delegated

    @property
    def dead_peers(self) -> frozenset[int]:
        """The ranks that only delegates (processes that send for this rank) can reach, because the link is dead."""
        return self._inline.dead_peers

    def switch(self, *, delegated: bool) -> None:
        """Change who sends from the next step on: delegates, or this rank itself.

        Delegates are processes that send for this rank. Over dead links, they always send.

        Args:
            delegated: True: delegates send over all links. False: this rank itself sends over all links that are not
                dead.
        """
        self._is_delegated = delegated

    def begin(self, expected: Sequence[tuple[Message, Tensor]]) -> None:
        """Begin a training step: reconnect links that may work again, and begin to receive the expected messages.

        Args:
            expected: The messages that arrive in this step, each with its buffer.
        """
        self._revive()
        self._expected = dict(expected)
        self._kept, self._coming, self._came = {}, {}, set()
        self._delegated.begin([one for one in expected if self._goes_by_delegates(one[0].peer)])
        for message, buffer in expected:
            if not self._goes_by_delegates(message.peer) and self._inline.posts_early(message.peer):
                self._post(message, buffer)

    def send(self, message: Message, tensor: Tensor) -> None:
        """Begin to send a message over a link.

        If delegates serve this link, a delegate (a process that sends for this rank) sends it. Otherwise this rank
        itself sends it.
        """
        if self._goes_by_delegates(message.peer):
            self._delegated.send(message, tensor)
            return
        self._kept[message] = tensor
        with self._bridging():
            self._inline.send(message, tensor)

    def receive(self, message: Message, buffer: Tensor) -> Arrival:
        """Begin to receive a message into the buffer, and return a function that waits for it."""
        if not self._goes_by_delegates(message.peer) and message not in self._coming:
            self._post(message, buffer)
        return partial(self.take, message, buffer)

    def finish(self) -> None:
        """Wait until all messages have left this rank.

        Messages that the rank itself sent must also have arrived at the receiving rank.
        """
        while self._inline.is_sending:
            with self._bridging():
                self._inline.finish()
        for peer in sorted({message.peer for message in (*self._kept, *self._coming)}):
            if not self._goes_by_delegates(peer):
                with self._bridging():
                    self._inline.part(peer, Message(peer, self._num_stages, True, 0))
        self._delegated.finish()
        self._kept, self._coming = {}, {}

    def close(self) -> None:
        """End the processes of the delegates, which send and receive for this rank."""
        self._delegated.close()
        self._inline.close()

    def take(self, message: Message, buffer: Tensor) -> float | None:
        """Wait for a message that the rank itself or a delegate receives; return the seconds since it was sent.

        A delegate is a process that receives for the rank. The result is None if the time of the message's arrival is
        unknown.
        """
        if message in self._coming and message not in self._came:
            with self._bridging():
                seconds = self._coming[message]()
                self._came.add(message)
                return seconds
        return None if message in self._came else self._delegated.take(message, buffer)

    def _goes_by_delegates(self, peer: int) -> bool:
        return self._is_delegated or peer in self._inline.dead_peers

    def _post(self, message: Message, buffer: Tensor) -> None:
        with self._bridging():
            self._coming[message] = self._inline.receive(message, buffer)

    @contextmanager
    def _bridging(self) -> Iterator[None]:
        """Run the context, and let delegates send the missing messages if a link fails inside it."""
        try:
            yield
        except LinkDead as error:
            self._bridge(error.peer)

    def _bridge(self, peer: int) -> None:
        """Agree with another rank on the messages that have not arrived, and let delegates send these."""
        if peer in self._bridged:
            return
        self._bridged.add(peer)
        if self.conditions.between(self._inline.rank, peer).is_dead:
            self._by_condition.add(peer)
        self._inline.give_up(peer)
        missing = self._missing(peer)
        theirs = self._exchange_missing(peer, [message for message, _ in missing])
        self._delegated.expect(missing)
        for message, tensor in self._kept.items():
            if message.peer == peer and theirs[self._inline.tag(message)]:
                self._delegated.send(message, tensor)

    def _missing(self, peer: int) -> list[tuple[Message, Tensor]]:
        """Return the messages of this step that have not arrived from a rank whose link is broken."""
        for message, arrival in self._coming.items():
            if message.peer == peer and message not in self._came:
                with suppress(LinkDead):
                    arrival()
                    self._came.add(message)
        return [one for one in self._expected.items() if one[0].peer == peer and one[0] not in self._came]

    def _exchange_missing(self, peer: int, missing: Sequence[Message]) -> Tensor:
        """Send a rank the list of missing messages, and return its answer.

        The answer has a 1 for the tag of each message that is missing there.
        """
        account = Message(peer, self._num_stages, False, 0)
        ours = torch.zeros(self._inline.tag(account), dtype=torch.uint8)
        ours[[self._inline.tag(message) for message in missing]] = 1
        theirs = torch.zeros_like(ours)
        self._delegated.expect([(account, theirs)])
        self._delegated.send(account, ours)
        self._delegated.take(account, theirs)
        return theirs

    def _revive(self) -> None:
        """Connect again to ranks whose links' conditions are no longer dead."""
        for peer in sorted(self._by_condition):
            if self._reconnect is not None and not self.conditions.between(self._inline.rank, peer).is_dead:
                self._num_reconnects[peer] = self._num_reconnects.get(peer, 0) + 1
                self._inline.reach_again(peer, self._reconnect(peer, self._num_reconnects[peer]))
                self._by_condition.discard(peer)
                self._bridged.discard(peer)
