"""Slots: room for messages in memory that a rank shares with one of its delegates."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass

import torch
from torch import Tensor

_HEADER_BYTES = 64
"""The moment of sending, in front of what is sent, which so begins where any dtype may."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a message of a size lies."""

    offset: int
    num_bytes: int


class SlotViews:
    """Slots as tensors, in whichever process has the memory's descriptor; each is mapped when it is first asked for.

    The memory has no name: it is gone with the last process that maps it, however these end.
    """

    def __init__(self, descriptor: int, *, pinned: bool = False) -> None:
        """``pinned``: the pages are CUDA's to read and write while the CPU goes on."""
        self._descriptor = descriptor
        self._pinned = pinned
        self._whole: dict[Slot, Tensor] = {}

    def whole(self, slot: Slot) -> Tensor:
        """Header and message as bytes, which is what travels."""
        if slot not in self._whole:
            size = _HEADER_BYTES + slot.num_bytes
            room = torch.frombuffer(mmap.mmap(self._descriptor, size, offset=slot.offset), dtype=torch.uint8)
            if self._pinned:
                torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(room.data_ptr(), size, 0))  # type: ignore[no-untyped-call]
            self._whole[slot] = room
        return self._whole[slot]

    def message(self, slot: Slot, like: Tensor) -> Tensor:
        """What is sent, with the shape and dtype of a tensor."""
        return self.whole(slot)[_HEADER_BYTES:].view(like.dtype).view(like.shape)

    def sent_s(self, slot: Slot) -> Tensor:
        """The moment at which it was sent: one float64, on the sender's clock."""
        return self.whole(slot)[:8].view(torch.float64)


class Slots:
    """The rank's side: gives every message of a step a slot that it keeps from step to step."""

    def __init__(self, *, pinned: bool = False) -> None:
        self.descriptor = os.memfd_create("slots of a delegate")
        self.views = SlotViews(self.descriptor, pinned=pinned)
        self._of_tags: dict[int, Slot] = {}
        self._end = 0

    def of(self, tag: int, num_bytes: int) -> Slot:
        """The slot of the message with a tag; it moves where it no longer fits."""
        slot = self._of_tags.get(tag)
        if slot is None or slot.num_bytes != num_bytes:
            slot = self._of_tags[tag] = Slot(self._end, num_bytes)
            pages = -(-(_HEADER_BYTES + num_bytes) // mmap.PAGESIZE)
            self._end += pages * mmap.PAGESIZE
            os.ftruncate(self.descriptor, self._end)
        return slot

    def close(self) -> None:
        """Give the memory back, as soon as no tensor shows it any more."""
        os.close(self.descriptor)
