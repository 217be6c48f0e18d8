from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from autotuner.core.errors import InvalidInput
from autotuner.training.lossy_exchange import (
    BucketExchange,
    DemoReplicator,
    ElementReplicator,
    FullReplicator,
    ParameterAverager,
    ReplicatedOptimizer,
    exchange_hook,
)
from autotuner.training.lossy_exchange import exchange as at_once
from autotuner.training.momentum import Rows, random_offsets, striding_offsets
from tests.training.lossy_ranks import DENSE, KEEPING, NUM_STEPS, REPLICATORS, SHAPES, gradients, small_model
from tests.training.lossy_training import Training
from tests.trials.fork_server import ForkServer
from tests.trials.joined import Noted


# ---------------------------------------------------------------- averaging
def test_a_period_of_no_steps_is_refused(alone: dist.ProcessGroup) -> None:
    with pytest.raises(InvalidInput) as refused:
        ParameterAverager([torch.zeros(2)], alone, period=0)
    assert (refused.value.field, refused.value.nearest) == ("period", 1)


def test_the_average_of_one_replica_is_itself(alone: dist.ProcessGroup) -> None:
    held = torch.zeros(3)
    averager = ParameterAverager([held], alone, period=1)
    held.add_(torch.tensor([1.0, -2.0, 0.25]))
    assert averager.after_step()
    assert held.tolist() == [1.0, -2.0, 0.25]
    assert averager.payload_bytes == 0


def test_an_averager_goes_on_from_saved_anchors_and_steps(alone: dist.ProcessGroup) -> None:
    first, second = (ParameterAverager([torch.full((3,), start)], alone, period=2) for start in (1.0, 5.0))
    first.after_step()
    second.load_state_dict(first.state_dict())
    assert second.state_dict()["anchors"][0].tolist() == [1.0] * 3
    assert second.after_step()


def test_anchors_and_residuals_of_other_tensors_are_refused(alone: dist.ProcessGroup) -> None:
    held, other = [torch.zeros(4)], [torch.zeros(5)]
    with pytest.raises(InvalidInput, match="shapes"):
        ParameterAverager(held, alone).load_state_dict({"anchors": other, "num_steps": 0})
    with pytest.raises(InvalidInput, match="shapes"):
        DemoReplicator(held, alone).load_state_dict({"residuals": other, "num_steps": 1})


# ---------------------------------------------------------------- convergence
def learnt(exchange: str, fork_server: ForkServer, folder: Path) -> Training:
    folder.mkdir()
    (folder / "exchange").write_text(exchange)
    run = fork_server.have_done("tests.training.lossy_ranks:learns", folder, 4)
    assert set(run.exit_codes) == {0}, run.logs
    found: Training = torch.load(folder / "0.pt")
    return found


@pytest.mark.oracle
def test_a_sixteenth_of_the_exchange_gives_replicas_the_knowledge_of_others(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    names = ("full", "none", "demo 1/16", "random 1/16")
    full, none, demo, random = (learnt(name, fork_server, tmp_path / str(at)) for at, name in enumerate(names))
    assert full["payload_bytes"] == 16 * random["payload_bytes"]
    assert demo["payload_bytes"] == pytest.approx(1.25 * random["payload_bytes"], rel=1e-3)  # a byte beside four
    assert none["payload_bytes"] == 0
    # 60 steps of one seed: full 2.10, demo 2.40, random 3.38, none 3.77 nats; other machines round otherwise
    assert full["validation_loss"] < demo["validation_loss"] < 3.1 < none["validation_loss"]


# ---------------------------------------------------------------- exchanges
TASKS = "tests.training.lossy_ranks"


def done(fork_server: ForkServer, folder: Path, task: str) -> list[Any]:
    return fork_server.have_done(f"{TASKS}:{task}", folder, 2).saved()


@pytest.fixture(scope="module")
def exchanged(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return done(fork_server, tmp_path_factory.mktemp("exchanges"), "exchanges")


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def mean(step: int) -> Tensor:
    return (flat(gradients(0, step)) + flat(gradients(1, step))) / 2


@pytest.mark.parametrize("name", REPLICATORS)
def test_every_replica_gets_the_same_bits(name: str, exchanged: list[Any]) -> None:
    for first, second in zip(*(of_rank[name]["steps"] for of_rank in exchanged), strict=True):
        assert [one.shape for one in first] == [torch.Size(shape) for shape in SHAPES]
        assert torch.equal(flat(first), flat(second))


@pytest.mark.parametrize("name", DENSE)
def test_an_exchange_that_sends_everything_gives_the_mean_gradient(name: str, exchanged: list[Any]) -> None:
    for step, found in enumerate(exchanged[0][name]["steps"]):
        # a cosine transform and back rounds sixteen products of fp32 twice
        torch.testing.assert_close(flat(found), mean(step), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", KEEPING)
def test_a_sparse_exchange_keeps_the_unsent_rest(name: str, exchanged: list[Any]) -> None:
    everything = sum(flat(gradients(0, step)).square().sum() for step in range(NUM_STEPS))
    kept = flat(exchanged[0][name]["state"]["residuals"]).square().sum()
    assert 0.1 * everything < kept < everything


@pytest.mark.parametrize("name", [name for name in KEEPING if "demo" not in name])
def test_elements_arrive_sooner_or_later(name: str, exchanged: list[Any]) -> None:
    """What was exchanged and what is still kept are together what both replicas learnt, but for the decay."""
    arrived = sum(flat(found) for found in exchanged[0][name]["steps"])
    kept = sum(flat(of_rank[name]["state"]["residuals"]) for of_rank in exchanged) / 2
    learnt = sum(mean(step) for step in range(NUM_STEPS))
    # a step forgets a thousandth of what is kept, five steps of values up to four half a hundredth each
    torch.testing.assert_close(arrived + kept, learnt, rtol=0.0, atol=0.05)


@pytest.mark.parametrize(
    ("name", "payload_bytes"),
    [
        ("full", 4 * 714),
        ("demo", (24 + 3 + 2 + 0 + 1 + 17) * 2 * (4 + 1)),  # chunks, of which two components with a byte each
        ("wide demo", (1 + 1 + 1 + 0 + 1 + 1) * 8 * (4 + 2)),
        ("short demo", (24 + 3 + 2 + 0 + 1 + 17) * 2 * (2 + 1)),
        ("random", (48 + 6 + 3 + 0 + 1 + 33) * 4),
        ("short random", (48 + 6 + 3 + 0 + 1 + 33) * 2),
        ("striding", (48 + 6 + 3 + 0 + 1 + 33) * 4),
    ],
)
def test_the_payload_is_counted_by_the_byte(name: str, payload_bytes: int, exchanged: list[Any]) -> None:
    assert [of_rank[name]["payload"] for of_rank in exchanged] == [payload_bytes] * 2


def test_a_replicator_goes_on_from_a_state_as_if_nothing_had_been(
    exchanged: list[Any], fork_server: ForkServer, tmp_path: Path
) -> None:
    for of_rank in done(fork_server, tmp_path, "goes_on"):
        for name, last in of_rank.items():
            assert torch.equal(flat(last), flat(exchanged[0][name]["steps"][-1])), name


def test_averaged_parameters_are_alike_behind_every_second_step_alone(fork_server: ForkServer, tmp_path: Path) -> None:
    first, second = done(fork_server, tmp_path, "averages")
    assert [(one["due"], one["payload"]) for one in first] == [(False, 0), (True, 4 * 714)] * 2
    for step, (own, other) in enumerate(zip(first, second, strict=True)):
        assert torch.equal(flat(own["parameters"]), flat(other["parameters"])) == (step % 2 == 1)
    # four gradients of size 1 are added and averaged in another order
    expected = 1.0 + sum(mean(step) for step in range(4))
    torch.testing.assert_close(flat(first[-1]["parameters"]), expected, rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- offsets
WIDTH = 16


def test_random_offsets_are_uniform_over_rows_and_steps() -> None:
    rows = Rows([torch.zeros(WIDTH * 1000)], WIDTH)
    counts = torch.zeros(WIDTH)
    for step in range(16):
        counts += torch.bincount(random_offsets(rows, step).view(-1), minlength=WIDTH)
    # chi square of 15 degrees of freedom: beyond 37.7 once in a thousand
    assert ((counts - 1000) ** 2 / 1000).sum() < 37.7


def test_random_offsets_of_one_step_do_not_predict_the_next() -> None:
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


# ---------------------------------------------------------------- optimizer
RATE = 0.5


def test_a_parameter_without_a_gradient_stays_where_it_is(alone: dist.ProcessGroup) -> None:
    used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    base = torch.optim.SGD([used, unused], lr=RATE)
    optimizer = ReplicatedOptimizer(base, partial(FullReplicator, group=alone))
    used.grad = torch.tensor([1.0, -1.0])
    optimizer.step()
    assert used.tolist() == [0.5, 1.5]
    assert unused.tolist() == [1.0, 1.0]


def test_signs_move_every_parameter_as_far(alone: dist.ProcessGroup) -> None:
    held = nn.Parameter(torch.zeros(3))
    optimizer = ReplicatedOptimizer(
        torch.optim.SGD([held], lr=RATE), partial(FullReplicator, group=alone), is_signed=True
    )
    held.grad = torch.tensor([100.0, -1e-6, 0.0])
    optimizer.step()
    assert held.tolist() == [-RATE, RATE, 0.0]


def test_a_closure_leaves_the_gradients_and_its_loss_is_returned(alone: dist.ProcessGroup) -> None:
    held = nn.Parameter(torch.tensor([2.0]))
    optimizer = ReplicatedOptimizer(torch.optim.SGD([held], lr=RATE), partial(FullReplicator, group=alone))

    def closure() -> float:
        optimizer.zero_grad()
        loss = held.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    assert optimizer.step(closure) == 4.0
    assert held.tolist() == [0.0]


def test_the_unsent_residual_is_part_of_the_saved_state(alone: dist.ProcessGroup) -> None:
    held = nn.Parameter(torch.zeros(8))
    build = partial(ElementReplicator, group=alone, sparsity=4)
    optimizer = ReplicatedOptimizer(torch.optim.SGD([held], lr=RATE), build)
    held.grad = torch.ones(8)
    optimizer.step()
    assert sum(one.count_nonzero() for one in optimizer.state_dict()["replicator"]["residuals"]) == 6


# ---------------------------------------------------------------- trainers
NUM_RANKS = 4
EVERY_CHUNK = sum(-(-value.numel() // 16) for value in small_model().parameters())


@pytest.fixture(scope="module")
def sharded(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return trained(fork_server, tmp_path_factory.mktemp("fsdp"), "fsdp")


@pytest.fixture(scope="module")
def hooked(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return trained(fork_server, tmp_path_factory.mktemp("ddp"), "ddp")


def trained(fork_server: ForkServer, folder: Path, task: str) -> list[Any]:
    return fork_server.have_done(f"tests.training.lossy_ranks:{task}", folder, NUM_RANKS).saved()


def assert_near(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, value in expected.items():
        # AdamW divides a gradient by its size: what rounding left of a tiny one moves a parameter by a share of lr
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)


def test_an_exchange_of_all_components_trains_shards_as_hybrid_shards_are_trained(sharded: list[Any]) -> None:
    assert_near(sharded[0]["all of demo"], sharded[0]["hybrid"])


@pytest.mark.parametrize("name", ["all of demo", "demo", "random", "averaged"])
def test_replicas_of_shards_keep_the_same_bits(name: str, sharded: list[Any]) -> None:
    for of_rank in sharded[1:]:
        for parameter, value in sharded[0][name].items():
            assert torch.equal(of_rank[name][parameter], value)


@pytest.mark.parametrize("name", ["demo", "random", "averaged"])
def test_a_lossy_exchange_trains_something_else(name: str, sharded: list[Any]) -> None:
    with pytest.raises(AssertionError):
        assert_near(sharded[0][name], sharded[0]["hybrid"])


def test_an_optimizer_that_was_saved_and_loaded_trains_on_as_if_it_had_not(sharded: list[Any]) -> None:
    for of_rank in sharded:
        for parameter, value in of_rank["demo"].items():
            assert torch.equal(of_rank["demo, saved and loaded"][parameter], value)


@pytest.mark.parametrize("name", ["full", "all of demo"])
def test_a_hook_that_sends_everything_trains_as_ddp_does(name: str, hooked: list[Any]) -> None:
    assert_near(hooked[0][name]["parameters"], hooked[0]["plain"]["parameters"])


def test_replicas_under_a_hook_keep_the_same_bits(hooked: list[Any]) -> None:
    for of_rank in hooked[1:]:
        for parameter, value in hooked[0]["demo"]["parameters"].items():
            assert torch.equal(of_rank["demo"]["parameters"][parameter], value)


def test_a_hook_counts_what_all_buckets_sent(hooked: list[Any]) -> None:
    assert hooked[0]["demo"]["payload"] == EVERY_CHUNK * 2 * (4 + 1)  # two components, with a byte each


# ---------------------------------------------------------------- demo

CHUNK, TOP_K, DECAY = 8, 3, 0.9


def cosines(chunk: Tensor) -> Tensor:
    """The transform by its definition."""
    number = len(chunk)
    sums = [
        sum(float(x) * math.cos(math.pi * (i + 0.5) * k / number) for i, x in enumerate(chunk)) for k in range(number)
    ]
    scales = [math.sqrt((1 if k == 0 else 2) / number) for k in range(number)]
    return torch.tensor([one * scale for one, scale in zip(sums, scales, strict=True)])


def elements(components: Tensor) -> Tensor:
    """The inverse by its definition."""
    number = len(components)
    first = float(components[0]) / math.sqrt(number)
    rest = [
        sum(float(components[k]) * math.cos(math.pi * (i + 0.5) * k / number) for k in range(1, number))
        for i in range(number)
    ]
    return torch.tensor([first + math.sqrt(2 / number) * one for one in rest])


def largest(components: Tensor) -> Tensor:
    kept = components.abs().topk(TOP_K).indices
    return torch.zeros_like(components).index_copy(0, kept, components[kept])


def test_a_single_replica_takes_its_own_fast_components_and_keeps_the_slow_ones(alone: dist.ProcessGroup) -> None:
    torch.manual_seed(0)
    replicator = DemoReplicator([torch.zeros(CHUNK)], alone, chunk=CHUNK, top_k=TOP_K, decay=DECAY)
    momentum = torch.zeros(CHUNK)
    for _ in range(4):
        gradient = torch.randn(CHUNK)
        momentum = DECAY * momentum + gradient
        sent = elements(largest(cosines(momentum)))
        momentum = momentum - sent
        (taken,) = at_once(replicator, [gradient])
        # sums of eight products of fp32, rounded in another order
        torch.testing.assert_close(taken, sent, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(replicator.state_dict()["residuals"][0], momentum, rtol=1e-4, atol=1e-5)
    assert replicator.payload_bytes == 0


def test_other_memory_of_a_rank_does_not_change_the_count_of_a_tensor(alone: dist.ProcessGroup) -> None:
    torch.manual_seed(0)
    shared, others = torch.randn(21), torch.randn(40)
    found = []
    for beside in ([], [others]):
        replicator = DemoReplicator([*beside, shared], alone, chunk=CHUNK, top_k=TOP_K)
        found.append(at_once(replicator, [*beside, shared])[-1])
    # the same products in a matrix of other height may be summed in another order
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("chunk", "top_k", "decay", "field", "nearest"),
    [
        (8, 9, 0.9, "top_k", 8),
        (8, 0, 0.9, "top_k", 1),
        (0, 1, 0.9, "width", 1),
        (2**16, 1, 0.9, "chunk", 2**15),
        (8, 2, 1.1, "decay", 1.0),
    ],
)
def test_an_illegal_exchange_is_refused_with_the_nearest_legal_one(
    chunk: int, top_k: int, decay: float, field: str, nearest: float, alone: dist.ProcessGroup
) -> None:
    with pytest.raises(InvalidInput) as refused:
        DemoReplicator([torch.zeros(4)], alone, chunk=chunk, top_k=top_k, decay=decay)
    assert (refused.value.field, refused.value.nearest) == (field, nearest)


def test_residuals_go_on_in_chunks_of_another_size(alone: dist.ProcessGroup) -> None:
    short, long = (DemoReplicator([torch.zeros(20)], alone, chunk=chunk, top_k=1) for chunk in (4, 16))
    at_once(short, [torch.arange(20.0)])
    long.load_state_dict(short.state_dict())
    assert torch.equal(long.state_dict()["residuals"][0], short.state_dict()["residuals"][0])


# ---------------------------------------------------------------- ddp hook


def trained_by_ddp(exchange: BucketExchange, num_steps: int) -> None:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 8))
    model.register_comm_hook(exchange, exchange_hook)
    for _ in range(num_steps):
        model(torch.randn(4, 8)).square().mean().backward()
        model.zero_grad()


def test_a_hook_keeps_its_residuals_over_a_checkpoint(alone: dist.ProcessGroup) -> None:
    build = partial(DemoReplicator, group=alone, chunk=8, top_k=1)
    first, second = BucketExchange(build, alone), BucketExchange(build, alone)
    trained_by_ddp(first, 3)
    (saved,) = first.state_dict().values()
    second.load_state_dict(first.state_dict())
    (still,) = second.state_dict().values()
    assert all(torch.equal(one, other) for one, other in zip(saved["residuals"], still["residuals"], strict=True))
    trained_by_ddp(second, 2)  # the first is exchanged in full, the second goes on from the residuals
    (later,) = second.state_dict().values()
    assert later["num_steps"] == saved["num_steps"] + 1


class NotedReplicator(FullReplicator):
    """What it sends notes whether anybody waits for it."""

    def __init__(self, tensors: Sequence[Tensor], group: dist.ProcessGroup) -> None:
        super().__init__(tensors, group)
        self.sent: list[Noted] = []

    def start(self, gradients: Sequence[Tensor]) -> Any:
        super().start(gradients)
        self.sent.append(Noted(gradients[0]))
        return self.sent[-1]


def test_data_that_a_hook_sends_has_arrived_when_the_backward_pass_ends(alone: dist.ProcessGroup) -> None:
    built: list[NotedReplicator] = []

    def build(tensors: Sequence[Tensor]) -> NotedReplicator:
        built.append(NotedReplicator(tensors, alone))
        return built[-1]

    trained_by_ddp(BucketExchange(build, alone), 3)
    (replicator,) = built
    assert [sent.was_awaited for sent in replicator.sent] == [True, True]  # the first step is exchanged in full
