"""How often a loss gate is wrong: false passes of replicators that are broken on purpose, false failures of equal runs.

``python -m bench.gate_rates`` trains a small decoder of ours on two gloo ranks, each of which reads a language of its
own, from many seeds with each exchange, and has the product's own code judge the runs by threes. Each seed is in one
gate alone, so that gates are independent; rates have Wilson's interval of 95 %. ``make bench`` does not run it: it
takes minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn

from autotuner.core.convergence_gate import GateOutcome, LossGate, Training, is_hopeless, judge
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.core.workload import Workload
from autotuner.training.replication.averaging import ParameterAverager
from autotuner.training.replication.demo import DemoReplicator
from autotuner.training.replication.elements import ElementReplicator, striding_offsets
from autotuner.training.replication.optimizer import ReplicatedOptimizer
from autotuner.training.replication.replicator import BuildReplicator, FullReplicator
from bench.broken_replicators import Forgetful, Noisy, OneSided, Silent
from trials.model.decoder import Decoder, cross_entropy
from trials.training.data import batch

_NUM_REPLICAS = 2

_MODEL = TransformerSpec(
    name="small", num_layers=2, hidden_size=64, num_heads=4, num_kv_heads=2, head_dim=16, ffn_size=128, vocab_size=256
)

_WORKLOAD = Workload(seq_len=32, global_batch_size=8)

_LEARNING_RATE = 1e-3
"""The default of trials."""

_CPU = torch.device("cpu")

_SPEC = TrialSpec(
    trial_id="gate-rates",
    model=_MODEL,
    workload=_WORKLOAD,
    layout=Layout(data_parallel_replicate_degree=_NUM_REPLICAS),
    device="cpu",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What is trained beside the full exchange."""

    build: Callable[[dist.ProcessGroup], BuildReplicator] | None = None
    """The replicator, of a group; None: the full exchange."""
    is_signed: bool = False
    """Parameters follow the sign of what was exchanged."""
    period: int = 0
    """Steps between averages of the parameters; 0: these are never averaged."""
    num_languages: int = _NUM_REPLICAS
    """That the replicas read."""
    is_sound: bool = True
    """The gate should pass it."""


def _of(replicator: Callable[..., object], **settings: object) -> Callable[[dist.ProcessGroup], BuildReplicator]:
    return lambda group: partial(replicator, group=group, **settings)  # type: ignore[return-value]  # a Replicator


EXCHANGES: Mapping[str, Exchange] = {
    "full": Exchange(),
    "full again, summed otherwise": Exchange(build=_of(DemoReplicator, top_k=64)),
    "demo 8 of 64, signed": Exchange(build=_of(DemoReplicator, top_k=8), is_signed=True),
    "demo 4 of 64, signed": Exchange(build=_of(DemoReplicator, top_k=4), is_signed=True),
    "demo 2 of 64, signed": Exchange(build=_of(DemoReplicator, top_k=2), is_signed=True),
    "demo 8 of 64, unsigned": Exchange(build=_of(DemoReplicator, top_k=8)),
    "demo 4 of 64, unsigned": Exchange(build=_of(DemoReplicator, top_k=4)),
    "random 1 of 4, signed": Exchange(build=_of(ElementReplicator, sparsity=4), is_signed=True),
    "random 1 of 16, signed": Exchange(build=_of(ElementReplicator, sparsity=16), is_signed=True),
    "random 1 of 4, unsigned": Exchange(build=_of(ElementReplicator, sparsity=4)),
    "striding 1 of 4, unsigned": Exchange(build=_of(ElementReplicator, sparsity=4, offsets=striding_offsets)),
    "diloco every 4": Exchange(build=_of(Silent), period=4),
    "diloco every 16": Exchange(build=_of(Silent), period=16),
    "sends nothing": Exchange(build=_of(Silent), is_sound=False),
    "sends nothing, one language": Exchange(build=_of(Silent), num_languages=1, is_sound=False),
    "full, one language": Exchange(num_languages=1),
    "one replica's gradients": Exchange(build=_of(OneSided), is_sound=False),
    "noise": Exchange(build=_of(Noisy), is_sound=False),
    "demo 4 of 64, signed, forgets": Exchange(build=_of(Forgetful, top_k=4), is_signed=True, is_sound=False),
    "demo 4 of 64, unsigned, forgets": Exchange(build=_of(Forgetful, top_k=4), is_sound=False),
}
"""By what they are called in the table."""


# ---------------------------------------------------------------------- trainings, on every rank
def _rank(rank: int, folder: str, names: Sequence[str], num_seeds: int, num_steps: Sequence[int]) -> None:
    torch.set_num_threads(1)
    method = f"file://{folder}/store"
    dist.init_process_group("gloo", rank=rank, world_size=_NUM_REPLICAS, init_method=method)
    for name in (name for name in names if not Path(folder, f"{name}.json").exists()):
        dist.barrier()  # every rank has looked before the first writes
        runs = [_trained(EXCHANGES[name], seed, num_steps) for seed in range(num_seeds)]
        if rank == 0:
            Path(folder, f"{name}.json").write_text(json.dumps(runs))
    dist.destroy_process_group()


def _trained(exchange: Exchange, seed: int, checked: Sequence[int]) -> dict[str, list[float]]:
    """Losses of every step, and those on all languages behind the steps that are to be checked."""
    model = _first_model(seed)
    group = dist.group.WORLD
    assert group is not None
    base = torch.optim.SGD if exchange.is_signed else torch.optim.AdamW
    build = (exchange.build or _of(FullReplicator))(group)
    optimizer = ReplicatedOptimizer(base(model.parameters(), lr=_LEARNING_RATE), build, is_signed=exchange.is_signed)
    averager = ParameterAverager(list(model.parameters()), group, period=exchange.period) if exchange.period else None
    losses: list[Tensor] = []
    validated: list[float] = []
    for step in range(max(checked)):
        loss = _loss(model, seed, step, exchange.num_languages)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if averager is not None:
            averager.after_step()
        losses.append(loss.detach())
        if step + 1 in checked:
            validated.append(_validated(model, seed, step + 1, exchange.num_languages))
    return {"losses": _mean(torch.stack(losses)).tolist(), "validated": validated}


def _first_model(seed: int) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    model = Decoder(_MODEL, seq_len=_WORKLOAD.seq_len, layers=range(_MODEL.num_layers))
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, 0.0, 0.02, generator=generator)
    return model


def _loss(model: nn.Module, seed: int, step: int, num_languages: int, turn: int = 0) -> Tensor:
    settings = TrialSettings(num_languages=num_languages)
    spec = replace(_SPEC, seed=seed, settings=settings)
    own = batch(spec, step=step, data_parallel_rank=dist.get_rank(), device=_CPU, turn=turn).together()
    return cross_entropy(model(own.tokens_BS), own.labels_BS) / own.labels_BS.numel()


@torch.no_grad()
def _validated(model: nn.Module, seed: int, step: int, num_languages: int) -> float:
    losses = [_loss(model, seed, step + turn, num_languages, turn) for turn in range(_NUM_REPLICAS)]
    return _mean(torch.stack(losses)).mean().item()


def _mean(own: Tensor) -> Tensor:
    """Over all replicas."""
    dist.all_reduce(own)
    return own / _NUM_REPLICAS


# ---------------------------------------------------------------------- gates of these trainings
@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How often a gate said something."""

    count: int
    """Gates that did."""
    num_gates: int
    """Independent gates."""

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's of 95 % (E. B. Wilson, 1927)."""
        z, n, p = 1.96, self.num_gates, self.count / self.num_gates
        middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """All gates of one exchange after some steps."""

    passed: Rate
    excesses: tuple[float, ...]
    """Of every pair, as shares."""


def judged(gate: LossGate, candidate: Sequence[Training], reference: Sequence[Training]) -> Judged:
    """Gates over disjoint seeds, each ended as early as the product ends it."""
    pairs = list(zip(candidate, reference, strict=True))
    starts = range(0, len(pairs) - gate.num_seeds + 1, gate.num_seeds)
    results = [_gate(gate, pairs[start : start + gate.num_seeds]) for start in starts]
    return Judged(
        passed=Rate(count=sum(results), num_gates=len(results)),
        excesses=tuple(mine.end / theirs.end - 1 for mine, theirs in pairs),
    )


def _gate(gate: LossGate, pairs: Sequence[tuple[Training, Training]]) -> bool:
    """Whether it passes."""
    for known in range(1, len(pairs) + 1):
        mine, theirs = zip(*pairs[:known], strict=True)
        if is_hopeless(gate, mine, theirs):
            break
    return judge(gate, Layout(), mine, theirs).outcome is GateOutcome.PASSED


def _trainings(runs: Sequence[Mapping[str, list[float]]], index: int, num_steps: int) -> list[Training]:
    return [Training(losses=tuple(run["losses"][:num_steps]), validation_loss=run["validated"][index]) for run in runs]


def _lines(folder: Path, names: Sequence[str], checked: Sequence[int]) -> Iterator[str]:
    runs = {name: json.loads((folder / f"{name}.json").read_text()) for name in names}
    for index, num_steps in enumerate(checked):
        gate = LossGate(num_steps=num_steps)
        yield f"\nafter {num_steps} steps, {gate.num_seeds} seeds, {100 * gate.tolerance:g} %"
        yield f"{'exchange':34} {'loss':>6} {'excess, % ± sd':>18} {'worst pair':>10} {'passed':>8}  95 % interval"
        for name in names:
            alike = "full, one language" if EXCHANGES[name].num_languages == 1 else "full"
            mine, theirs = (_trainings(runs[one], index, num_steps) for one in (name, alike))
            found = judged(gate, mine, theirs)
            yield _line(name, statistics.fmean(one.end for one in mine), found)
        mine = _trainings(runs["full"], index, num_steps)
        apart = judged(gate, mine, [*mine[1:], mine[0]])
        yield _line("full, seeds not paired", statistics.fmean(one.end for one in mine), apart)


def _line(name: str, loss: float, found: Judged) -> str:
    low, high = found.passed.interval
    excess, spread = 100 * statistics.fmean(found.excesses), 100 * statistics.stdev(found.excesses)
    worst = 100 * max(found.excesses)
    rate = f"{found.passed.count}/{found.passed.num_gates}"
    figures = f"{loss:6.3f} {excess:+9.2f} ± {spread:6.2f} {worst:+10.2f}"
    return f"{name:34} {figures} {rate:>8}  {low:.2f} to {high:.2f}"


def main() -> None:
    """Train, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=27)
    parser.add_argument("--steps", type=int, nargs="+", default=[64, 192])
    parser.add_argument(
        "--only", nargs="+", default=[], help="exchanges, beside the full one; of one language, that one's too"
    )
    parser.add_argument("--keep", type=Path, help="a folder for the trainings; what it has is not trained again")
    asked = parser.parse_args()
    names = [name for name in EXCHANGES if not asked.only or name in ("full", *asked.only)]
    with TemporaryDirectory() as scratch:
        folder = asked.keep or Path(scratch)
        arguments = (str(folder), names, asked.seeds, sorted(asked.steps))
        spawn(_rank, args=arguments, nprocs=_NUM_REPLICAS)  # type: ignore[no-untyped-call]
        print("\n".join(_lines(folder, names, sorted(asked.steps))))  # noqa: T201  # a table for who asked


if __name__ == "__main__":
    main()
