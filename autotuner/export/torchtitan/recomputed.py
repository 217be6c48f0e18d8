"""Activation checkpointing of torchtitan, read as recomputation."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.choices import Recompute
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.export.flags import whole_number
from autotuner.export.target import NoteKind
from autotuner.export.torchtitan.settings import Settings

_MODE = "activation_checkpoint.mode"
_OPTION = "activation_checkpoint.selective_ac_option"
_BUDGET = "the compiler decides what is computed again; what keeps matrix products comes nearest"


def recompute_0_2(settings: Settings, layout: Layout) -> Layout:
    """Mode and option of 0.2: the mode ``selective`` with a number recomputes every n-th layer in full.

    Raises:
        InvalidInput: The mode or the option is none of torchtitan's.
    """
    settings.assume(_MODE, "selective")
    mode = settings.word(_MODE, "selective")
    if mode == "selective":
        return _selective(settings, layout)
    return _by_word(settings, layout, mode)


def recompute_0_3(settings: Settings, layout: Layout) -> Layout:
    """The kind of activation checkpointing of 0.3.

    Raises:
        InvalidInput: It is none of torchtitan's.
    """
    settings.assume("activation_checkpoint", "selective")
    return _by_word(settings, layout, settings.word("activation_checkpoint", "selective").replace("-", "_"))


def _by_word(settings: Settings, layout: Layout, mode: str) -> Layout:
    if mode == "memory_budget":
        settings.note(NoteKind.CHANGED, _MODE if _MODE in settings else "activation_checkpoint", _BUDGET)
        return replace(layout, recompute=Recompute.SELECTIVE)
    if mode not in Recompute.labels():
        rule = f"must be one of {', '.join(Recompute.labels())}, memory_budget"
        raise InvalidInput(_MODE if _MODE in settings else "activation_checkpoint", mode, rule, "selective")
    return replace(layout, recompute=Recompute.from_label(mode))


def _selective(settings: Settings, layout: Layout) -> Layout:
    settings.assume(_OPTION, "2", "torchtitan recomputes every second layer in full where no option is named")
    option = settings.word(_OPTION, "2")
    if option == "op":
        return replace(layout, recompute=Recompute.SELECTIVE)
    if not option.isdecimal():
        raise InvalidInput(_OPTION, option, 'must be "op" or the interval of layers that recompute', "op")
    every = max(1, whole_number(_OPTION, option))  # "0" recomputes all, as "1" does
    if every > 1:
        detail = f"layers {every}, {2 * every} ... of a rank recompute; those of a layout are 1, {every + 1} ..."
        settings.note(NoteKind.CHANGED, _OPTION, detail)
    return replace(layout, recompute=Recompute.FULL, recompute_every=every)
