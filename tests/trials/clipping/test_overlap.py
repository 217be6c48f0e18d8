from __future__ import annotations

import torch
from torch import nn

from trials.clipping.overlap import Overlap


def test_a_reduction_overlaps_where_a_gradient_follows_it() -> None:
    overlap = Overlap()
    overlap.gradient()
    overlap.reduction(30)
    overlap.gradient()
    overlap.reduction(10)
    overlap.end_backward()
    overlap.gradient()  # of the next step
    assert overlap.share == 0.75


def test_what_starts_behind_the_backward_passes_overlaps_nothing() -> None:
    overlap = Overlap()
    overlap.gradient()
    overlap.end_backward()
    overlap.reduction(8)
    overlap.gradient()
    assert overlap.share == 0.0


def test_where_nothing_is_reduced_there_is_no_share() -> None:
    overlap = Overlap()
    overlap.reduction(1)
    overlap.reset()
    assert overlap.share is None


def test_every_gradient_of_watched_parameters_is_heard_of() -> None:
    overlap, module = Overlap(), nn.Linear(2, 2)
    overlap.watch(module.parameters())
    overlap.gradient()
    overlap.reduction(4)
    module(torch.ones(2)).sum().backward()
    assert overlap.overlapped_bytes == 4
