"""Small benchmarks of a device (matrix products, attention, memory traffic) and of the collectives between ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from autotuner.core.choices import Precision
from autotuner.core.link import CollectiveKind
from autotuner.core.profile import AttentionPoint, CollectivePoint, GemmPoint, TrafficPoint
from autotuner.trials.model.attention import BACKENDS

_DTYPES = {Precision.FP32: torch.float32, Precision.BF16: torch.bfloat16}

_FIRST_WITH_FP8 = (8, 9)
"""Compute capability of Ada, the first generation whose tensor cores support fp8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of matrices, attention, memory traffic and messages for which the microbenchmarks are run."""

    gemm: tuple[tuple[int, int, int], ...]
    """Rows, columns and inner size of each matrix product."""
    attention: tuple[tuple[int, int, int, int], ...]
    """Batch, heads, head dim and sequence length of each attention core."""
    traffic_bytes: tuple[int, ...]
    """Sizes in bytes of one operand of a memory-bound operation."""
    message_bytes: tuple[int, ...]
    """Sizes in bytes of the whole tensor of a collective; the smallest shows the latency, the largest the bandwidth."""

    @classmethod
    def of(cls, device: torch.device, *, quick: bool) -> Sizes:
        """Return sizes as they occur in layers that are trained on this kind of device.

        All ranks measure the same sizes.

        Args:
            device: The device of this rank.
            quick: Return only a few tiny sizes, to test the benchmarks themselves.
        """
        if quick:
            return cls(
                gemm=((128, 128, 128),),
                attention=((1, 2, 32, 128),),
                traffic_bytes=(2**20,),
                message_bytes=(2**12, 2**20),
            )
        if device.type == "cpu":
            return cls(
                gemm=tuple((m, n, k) for m in (256, 1024) for n, k in ((256, 256), (1024, 1024), (2816, 1024))),
                attention=((4, 8, 32, 128), (1, 4, 64, 512)),
                traffic_bytes=(2**23, 2**26),
                message_bytes=(2**12, 2**20, 2**23),
            )
        return cls(
            gemm=tuple(
                (m, n, k)
                for m in (2048, 8192, 16384)
                for n, k in ((2048, 2048), (8192, 2048), (2048, 8192), (4096, 4096), (14336, 4096), (4096, 14336))
            ),
            attention=((1, 32, 128, 2048), (1, 32, 128, 4096), (1, 32, 128, 8192), (4, 16, 128, 2048)),
            traffic_bytes=(2**28, 2**31),
            message_bytes=(2**14, 2**20, 2**24, 2**28),
        )


class Bench:
    """Measures the time of function calls on one device.

    It times several batches of calls and keeps the shortest time, since a disturbance can only add time. For
    collectives on a CPU, it keeps the median.
    """

    def __init__(self, device: torch.device, *, budget_s: float) -> None:
        self.device = device
        self._budget_s = budget_s

    def seconds(self, call: Callable[[], object], *, together: bool = False) -> float:
        """Return the seconds that one call takes.

        Args:
            call: The function to time.
            together: True if other ranks take part in the call. Then all ranks make the same number of calls, and the
                time includes waiting for each other.
        """
        call()  # the first call plans, allocates and compiles
        if together:
            batches = [self._batch_s(call, 4, time.perf_counter) for _ in range(4)]
            # a core's threads wait for one another now and then, in training as here; a GPU is only ever disturbed
            return min(batches) if self.device.type == "cuda" else median(batches)
        # on a core, what the process itself computes: neighbours that take the core away do not count
        clock = time.perf_counter if self.device.type == "cuda" else time.thread_time
        num_calls = max(1, int(self._budget_s / 8 / max(1e-7, self._batch_s(call, 1, clock))))
        return min(self._batch_s(call, min(num_calls, 200), clock) for _ in range(8))

    def _batch_s(self, call: Callable[[], object], num_calls: int, clock: Callable[[], float]) -> float:
        self._settle()
        start_s = clock()
        for _ in range(num_calls):
            call()
        self._settle()
        return (clock() - start_s) / num_calls

    def _settle(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def launch_s(bench: Bench) -> float:
    """Return the seconds that the smallest operation takes: one on a tensor with a single number."""
    number = torch.zeros(1, device=bench.device)
    return bench.seconds(lambda: number.add_(1.0))


def gemm_points(bench: Bench, sizes: Sizes) -> Iterator[GemmPoint]:
    """Yield the measured times of matrix products of every size, in every precision that the device supports."""
    for m, n, k in sizes.gemm:
        for precision in _precisions(bench.device):
            seconds = bench.seconds(_product(m, n, k, precision, bench.device))
            yield GemmPoint(precision=precision, m=m, n=n, k=k, seconds=seconds)


def attention_points(bench: Bench, sizes: Sizes) -> Iterator[AttentionPoint]:
    """Yield the measured times of causal attention of every size, with every kernel that runs on the device."""
    for kernel, backend in BACKENDS.items():
        for precision, dtype in _DTYPES.items():
            for shape in sizes.attention:
                try:
                    forward_s, backward_s = _attention_s(bench, backend, dtype, shape)
                except RuntimeError:  # no such kernel here, or not for this format: it is not in the profile
                    continue
                batch, num_heads, head_dim, seq_len = shape
                yield AttentionPoint(
                    kernel=kernel,
                    precision=precision,
                    batch=batch,
                    num_heads=num_heads,
                    head_dim=head_dim,
                    seq_len=seq_len,
                    forward_s=forward_s,
                    backward_s=backward_s,
                )


def traffic_points(bench: Bench, sizes: Sizes) -> Iterator[TrafficPoint]:
    """Yield the measured times of memory traffic.

    The operations are a copy, and ``a + 3 * b`` over vectors (the triad of the STREAM benchmark).
    """
    for num_bytes in sizes.traffic_bytes:
        first, second, target = (torch.ones(num_bytes // 4, device=bench.device) for _ in range(3))
        seconds = bench.seconds(partial(target.copy_, first))
        yield TrafficPoint(operation="copy", num_bytes=2 * num_bytes, seconds=seconds)
        seconds = bench.seconds(partial(torch.add, first, second, alpha=3.0, out=target))
        yield TrafficPoint(operation="triad", num_bytes=3 * num_bytes, seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """A group of ranks to which this rank belongs. All other ranks communicate in similar groups at the same time."""

    group: dist.ProcessGroup
    num_nodes: int = 1
    """Number of nodes that the group's ranks are on."""


def collective_points(bench: Bench, sizes: Sizes, peers: Iterable[Peers]) -> Iterator[CollectivePoint]:
    """Yield the measured times of every kind of collective, at every message size, in each of the groups."""
    for one in peers:
        for num_bytes in sizes.message_bytes:
            for kind, call in _collectives(num_bytes, bench.device, one.group):
                yield CollectivePoint(
                    kind=kind,
                    num_ranks=one.group.size(),
                    num_bytes=num_bytes,
                    seconds=bench.seconds(call, together=True),
                    num_nodes=one.num_nodes,
                )


def peers_within(device: torch.device, num_local_ranks: int) -> list[Peers]:
    """Return the groups of ranks on one node to measure: all ranks of the node, and on a CPU also smaller groups.

    The sizes of the smaller groups are powers of two. The list is empty if the node has a single rank.
    """
    sizes = [1 << power for power in range(1, num_local_ranks.bit_length()) if num_local_ranks % (1 << power) == 0]
    if device.type == "cuda" or num_local_ranks not in sizes:
        sizes = [num_local_ranks] if num_local_ranks > 1 else []
    ranks = range(dist.get_world_size())
    return [Peers(group=_mine([ranks[at : at + size] for at in ranks[::size]])) for size in sizes]


def peers_across(num_local_ranks: int) -> list[Peers]:
    """Return the groups of ranks on several nodes to measure; empty if the job has one node.

    The first group consists of one rank per node, all with the same local rank. The second group consists of all ranks.
    """
    ranks = range(dist.get_world_size())
    num_nodes = len(ranks) // num_local_ranks
    if num_nodes == 1:
        return []
    same_number = Peers(group=_mine([ranks[at::num_local_ranks] for at in range(num_local_ranks)]), num_nodes=num_nodes)
    return [same_number] if num_local_ranks == 1 else [same_number, Peers(group=_mine([ranks]), num_nodes=num_nodes)]


def _mine(groups: Sequence[range]) -> dist.ProcessGroup:
    """Create a process group for each of these groups on every rank, and return the one that this rank belongs to."""
    made: dict[range, dist.ProcessGroup] = {ranks: dist.new_group(list(ranks)) for ranks in groups}
    return next(group for ranks, group in made.items() if dist.get_rank() in ranks)


def _precisions(device: torch.device) -> tuple[Precision, ...]:
    if device.type == "cuda" and torch.cuda.get_device_capability(device) >= _FIRST_WITH_FP8:
        return Precision.FP32, Precision.BF16, Precision.FP8
    return Precision.FP32, Precision.BF16


def _product(m: int, n: int, k: int, precision: Precision, device: torch.device) -> Callable[[], Tensor]:
    left, right = torch.randn(m, k, device=device), torch.randn(n, k, device=device)
    if precision != Precision.FP8:
        left, right = left.to(_DTYPES[precision]), right.to(_DTYPES[precision])
        return lambda: torch.mm(left, right.t())
    narrow_left, narrow_right = left.to(torch.float8_e4m3fn), right.to(torch.float8_e4m3fn)
    one = torch.ones((), device=device)
    return lambda: torch._scaled_mm(
        narrow_left, narrow_right.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
    )


def _attention_s(
    bench: Bench, backend: SDPBackend, dtype: torch.dtype, shape: tuple[int, int, int, int]
) -> tuple[float, float]:
    """Return the seconds of a forward and of a backward pass; the latter is the time of both minus the forward's."""
    batch, num_heads, head_dim, seq_len = shape
    size = batch, num_heads, seq_len, head_dim
    query, key, value = (torch.randn(size, device=bench.device, dtype=dtype, requires_grad=True) for _ in range(3))
    gradient = torch.ones_like(query)

    def forward() -> Tensor:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)

    with sdpa_kernel(backend):
        forward_s = bench.seconds(forward)
        both_s = bench.seconds(lambda: torch.autograd.grad(forward(), (query, key, value), gradient))
    return forward_s, max(both_s - forward_s, forward_s)  # no backward multiplies less than its forward


def _collectives(
    num_bytes: int, device: torch.device, group: dist.ProcessGroup
) -> Iterator[tuple[CollectiveKind, Callable[[], object]]]:
    num_ranks, rank = group.size(), group.rank()
    num_elements = num_bytes // 4 // num_ranks
    whole, other = torch.zeros(2, num_elements * num_ranks, device=device)
    part = torch.zeros(num_elements, device=device)

    def pass_on() -> None:
        """Send from every rank to the next."""
        operations = [
            dist.P2POp(dist.isend, whole, group=group, group_peer=(rank + 1) % num_ranks),
            dist.P2POp(dist.irecv, other, group=group, group_peer=(rank - 1) % num_ranks),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()

    yield "all_reduce", lambda: dist.all_reduce(whole, group=group)
    yield "all_gather", lambda: dist.all_gather_into_tensor(whole, part, group=group)
    yield "reduce_scatter", lambda: dist.reduce_scatter_tensor(part, whole, group=group)
    yield "all_to_all", lambda: dist.all_to_all_single(other, whole, group=group)
    yield "send", pass_on
