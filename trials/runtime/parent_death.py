"""Dying with the parent, so that no process of a trial outlives whoever started it."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(signal_number: signal.Signals = signal.SIGKILL) -> None:
    """Ask the kernel to send this process a signal when the thread that started it ends; nothing but Linux has it."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal_number))
