from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.core.choices import GradientSync
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from tests.builders import cpu_cluster
from tests.trials.zygote import Zygote
from trials.distributed.expert import all_gather, all_to_all
from trials.dry_run.fake_ranks import fake_ranks
from trials.faults import GroupCut, LateCollectives, Links, ring_hold_s
from trials.training.exchange import exchange_of

CPU = torch.device("cpu")
DELAY_S = 0.004


@pytest.fixture
def group() -> Iterator[dist.ProcessGroup]:
    """Four ranks, of which this is the first and the others answer at once."""
    with fake_ranks(0, 4):
        made = dist.new_group([0, 1, 2, 3])
        assert isinstance(made, dist.ProcessGroup)
        yield made


def links(**health: object) -> Links:
    ailing = replace(LinkHealth(ends=(1, 2), delay_s=DELAY_S), **health)  # type: ignore[arg-type]
    return Links.of(replace(cpu_cluster(4), link_health=(ailing,)))


def test_each_step_of_a_ring_is_late_and_bytes_pass_a_thin_link_no_faster_than_it_lets_them() -> None:
    assert ring_hold_s(2, 4, 800, 0.01, None) == pytest.approx(0.06)  # a product of floats
    assert ring_hold_s(1, 4, 800, 0.0, 1000.0) == pytest.approx(3 * 200 / 1000)


@pytest.mark.parametrize(
    ("collective", "num_steps"),
    [
        (lambda tensor, group: dist.all_reduce(tensor, group=group), 6),
        (lambda tensor, group: dist.all_reduce(tensor, group=group, async_op=True), 6),
        (all_gather, 3),
        (lambda tensor, group: all_to_all(tensor, [2] * 4, [2] * 4, group), 3),
    ],
)
def test_a_collective_waits_for_the_late_link_in_each_of_its_steps(
    group: dist.ProcessGroup, collective: Callable[[Tensor, dist.ProcessGroup], object], num_steps: int
) -> None:
    waits_s: list[float] = []
    LateCollectives([group], CPU, seed=0, wait=waits_s.append).meet(links())
    collective(torch.ones(8), group)
    assert waits_s == [pytest.approx(num_steps * DELAY_S)]  # a product of floats


@pytest.mark.parametrize(("sync", "num_steps"), [(GradientSync.DEMO, 3), (GradientSync.RANDOM, 6)])
def test_what_replicas_exchange_in_the_place_of_gradients_is_late_too(
    group: dist.ProcessGroup, sync: GradientSync, num_steps: int
) -> None:
    waits_s: list[float] = []
    LateCollectives([group], CPU, seed=0, wait=waits_s.append).meet(links())
    exchange = exchange_of(Layout(data_parallel_replicate_degree=4, gradient_sync=sync), [torch.zeros(640)], group)
    assert exchange is not None
    exchange.gradients([torch.ones(640)])
    assert sum(waits_s) == pytest.approx(num_steps * DELAY_S)  # a sum of floats


def test_other_groups_pass_as_they_are_and_so_does_a_group_whose_link_has_healed(group: dist.ProcessGroup) -> None:
    late = LateCollectives([group], CPU, seed=0)
    late.meet(links(is_dead=True))
    dist.all_reduce(torch.ones(8))  # of all ranks, which is another group
    with pytest.raises(GroupCut, match=r"link 1_2 is dead, .* ranks \[0, 1, 2, 3\]"):
        dist.all_reduce(torch.ones(8), group=group)
    late.meet(links(delay_s=0.0))
    dist.all_reduce(torch.ones(8), group=group)


def test_a_ring_that_passes_by_the_link_is_not_late_but_an_exchange_between_all_is(group: dist.ProcessGroup) -> None:
    late = LateCollectives([group], CPU, seed=0)
    late.meet(links(ends=(0, 2), is_dead=True))
    dist.all_reduce(torch.ones(8), group=group)
    with pytest.raises(GroupCut):
        all_to_all(torch.ones(8), [2] * 4, [2] * 4, group)


def test_no_rank_waits_for_ever_while_gloo_gives_up_what_a_backward_pass_left(zygote: Zygote, tmp_path: Path) -> None:
    run = zygote.have_done("tests.trials.faults.tasks:reduces_while_gloo_gives_up_an_object", tmp_path, 2)
    assert run.exit_codes == (0, 0), run.logs
