from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trials.clipping.bound import bucket_bound, clip, squared_norms


def clipped(max_norm: float) -> list[Tensor]:
    gradients = [torch.tensor([3.0]), torch.tensor([[4.0]])]
    clip(gradients, torch.tensor(5.0, dtype=torch.float64), max_norm)
    return gradients


def test_gradients_above_the_norm_are_scaled_down_to_it() -> None:
    assert [float(gradient) for gradient in clipped(1.0)] == pytest.approx([0.6, 0.8])


def test_gradients_below_the_norm_stay_as_they_are() -> None:
    assert [float(gradient) for gradient in clipped(6.0)] == [3.0, 4.0]


def test_gradients_of_zero_stay_zero() -> None:
    gradient = torch.zeros(3)
    clip([gradient], torch.zeros((), dtype=torch.float64), 1.0)
    assert gradient.tolist() == [0.0, 0.0, 0.0]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.floats(1e-3, 1e3))
def test_buckets_within_their_bound_are_within_the_norm_together(norms: list[float], max_norm: float) -> None:
    buckets = [torch.tensor([norm]) for norm in norms]
    bound = bucket_bound(max_norm, torch.tensor(float(len(buckets)), dtype=torch.float64))
    for bucket in buckets:
        clip([bucket], bucket.double().norm(), bound)
    # fp32 keeps 7 digits of every scale
    assert float(torch.stack(list(squared_norms(buckets))).sum().sqrt()) <= max_norm * (1 + 1e-6)
