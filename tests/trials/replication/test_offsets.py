from __future__ import annotations

import torch

from trials.replication.offsets import random_offsets, striding_offsets
from trials.replication.rows import Rows

WIDTH = 16


def test_random_offsets_are_uniform_over_rows_and_steps() -> None:
    rows = Rows([torch.zeros(WIDTH * 1000)], WIDTH)
    counts = torch.zeros(WIDTH)
    for step in range(16):
        counts += torch.bincount(random_offsets(rows, step).view(-1), minlength=WIDTH)
    # chi square of 15 degrees of freedom: beyond 37.7 once in a thousand
    assert ((counts - 1000) ** 2 / 1000).sum() < 37.7


def test_random_offsets_of_one_step_tell_nothing_of_the_next() -> None:
    rows = Rows([torch.zeros(WIDTH * 4000)], WIDTH)
    same = (random_offsets(rows, 7) == random_offsets(rows, 8)).float().mean()
    # one in sixteen, within four standard errors of 4000 rows
    assert abs(float(same) - 1 / WIDTH) < 0.016


def test_random_offsets_of_a_tensor_depend_on_its_place_and_not_on_its_neighbours_sizes() -> None:
    tensor = torch.zeros(100)
    small, large = (Rows([torch.zeros(before), tensor], WIDTH) for before in (5, 500))
    own = small.num_rows_of[1]
    assert torch.equal(random_offsets(small, 3)[-own:], random_offsets(large, 3)[-own:])


def test_strides_come_to_every_element_once_in_as_many_steps() -> None:
    rows = Rows([torch.zeros(40)], WIDTH)
    seen = [int(striding_offsets(rows, step)[0]) for step in range(WIDTH)]
    assert sorted(seen) == list(range(WIDTH))
