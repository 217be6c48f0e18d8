"""Trials whose replicas exchange less, over slow links between two nodes: ``python -m bench.lossy_networks``.

Our own trial job on 2 x 2 gloo ranks: two replicas, each a node of two FSDP2 shards, in network namespaces that a
shaped link joins (``bench.two_nodes``; needs root). ``times`` measures steps by exchange and bandwidth, and where the
times of full and DeMo exchange cross; ``bytes`` what the interfaces sent, beside the formula; ``losses`` what three
seeds learn over 10 Mbit/s, each replica reading a language of its own. Bounds: at 10 Mbit/s DeMo and random exchange
at least 3 times faster per step than full, some lossy exchange within 2 % of its loss; bytes within 2 %.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from torch.distributed import FileStore  # type: ignore[attr-defined]  # exported, but not by name

from autotuner.core import codec
from autotuner.core.choices import AttentionKernel, GradientSync, Precision, ShardLevel
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.model import TransformerSpec
from autotuner.core.stages import sent_bytes
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.core.workload import Workload
from bench.forked_ranks import on_ranks
from bench.two_nodes import TwoNodes
from trials.job.attempt import attempt
from trials.runtime.rank import RankInfo
from trials.runtime.report import Reporter

_MBIT = 1e6
_BANDWIDTHS = (10 * _MBIT, 100 * _MBIT, 1000 * _MBIT, None)

_MODEL = TransformerSpec(
    name="0.8M",
    num_layers=4,
    hidden_size=128,
    num_heads=4,
    num_kv_heads=4,
    head_dim=32,
    ffn_size=344,
    vocab_size=64,
)
_WORKLOAD = Workload(seq_len=64, global_batch_size=16)
_WIDER = replace(_MODEL, name="3.2M", hidden_size=256, head_dim=64, ffn_size=688)
"""For bytes: what a small message costs beside its bytes, headers and acknowledgements, is less of these."""
_FEW_TOKENS = Workload(seq_len=16, global_batch_size=4)
_HYBRID = Layout(
    data_parallel_replicate_degree=2,
    data_parallel_shard_degree=2,
    shard_level=ShardLevel.PARAMETERS,
    micro_batch_size=4,
    precision=Precision.FP32,
    attention_kernel=AttentionKernel.MATH,
)
LAYOUTS = {
    "full": _HYBRID,
    "demo": replace(_HYBRID, gradient_sync=GradientSync.DEMO),
    "random": replace(_HYBRID, gradient_sync=GradientSync.RANDOM),
    "diloco": replace(_HYBRID, gradient_sync=GradientSync.DILOCO),
}
"""A sixteenth of the gradients in each step, whose signs are followed, or an average every sixteen steps."""

_LEARNING_RATES = {"demo": 1.5e-3, "random": 3e-3}
"""Where another than 1e-3, which is best for AdamW, was better on one seed: signs need a rate of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A trial, and what both nodes sent while it ran."""

    measurement: Measurement
    sent_bytes: int


def trial(layout: Layout, settings: TrialSettings, seed: int = 0) -> TrialSpec:
    """A trial of the small model."""
    return TrialSpec(
        trial_id="lossy",
        model=_MODEL,
        workload=_WORKLOAD,
        layout=layout,
        device="cpu",
        settings=settings,
        reference_flop_per_s=1e11,
        seed=seed,
    )


def run(spec: TrialSpec, bits_per_s: float | None) -> Seen:
    """A trial over a link of that speed."""
    with TwoNodes(bits_per_s) as nodes:
        (measurement, *_) = on_ranks(4, partial(_of_rank, spec, nodes))
        assert measurement is not None
        return Seen(measurement=measurement, sent_bytes=nodes.sent_bytes(0) + nodes.sent_bytes(1))


def _of_rank(spec: TrialSpec, nodes: TwoNodes, rank: int, folder: Path) -> Measurement | None:
    nodes.enter(rank // 2)
    reports = folder / "reports.jsonl"
    info = RankInfo(rank=rank, world_size=4, local_rank=rank, local_world_size=4)
    store = FileStore(str(folder / "store"), 4)
    code = attempt(codec.dumps(spec), Reporter(reports, rank=rank), info, store=store)
    if code != 0:
        raise RuntimeError(reports.read_text())
    return _measurement(reports) if rank == 0 else None


def _measurement(reports: Path) -> Measurement:
    for line in reports.read_text().splitlines():
        found: dict[str, Any] = json.loads(line)
        if found.pop("type") == "measurement":
            return codec.from_plain(Measurement, found)
    raise RuntimeError("the trial measured nothing")


def times(num_steps: int) -> bool:
    """Print step times by exchange and bandwidth; whether lossy ones are three times faster at 10 Mbit/s."""
    settings = TrialSettings(
        warmup_steps=2,
        max_warmup_steps=2,
        measured_steps=num_steps,
        max_measured_steps=num_steps,
        profiled_steps=0,
        max_repeats=0,
    )
    _say(f"{'ms per step':12}" + "".join(f"{_name(bandwidth):>14}" for bandwidth in _BANDWIDTHS))
    found: dict[str, list[float]] = {}
    for name, layout in LAYOUTS.items():
        found[name] = [run(trial(layout, settings), bandwidth).measurement.step_time_s for bandwidth in _BANDWIDTHS]
        _say(f"{name:12}" + "".join(f"{1e3 * step_s:11.0f} ms" for step_s in found[name]))
    gains = {name: found["full"][0] / found[name][0] for name in LAYOUTS if name != "full"}
    _say("at 10 Mbit/s faster than full: " + ", ".join(f"{name} {gain:.1f} times" for name, gain in gains.items()))
    for name in gains:
        crossing = _crossing(found["full"], found[name])
        where = f"at {crossing / _MBIT:.0f} Mbit/s" if crossing is not None else "nowhere measured"
        _say(f"full and {name} take as long {where}")
    return gains["demo"] >= 3.0 and gains["random"] >= 3.0


def _crossing(full: Sequence[float], lossy: Sequence[float]) -> float | None:
    """The bandwidth in bit/s where both take as long, between measured ones along the seconds that a bit takes."""
    late = [0.0 if bandwidth is None else 1.0 / bandwidth for bandwidth in _BANDWIDTHS]
    gaps = [own - other for own, other in zip(full, lossy, strict=True)]
    for index in range(len(gaps) - 1):
        before, behind = gaps[index], gaps[index + 1]
        if before > 0.0 >= behind:
            share = before / (before - behind)
            s_per_bit = late[index] + share * (late[index + 1] - late[index])
            return 1.0 / s_per_bit if s_per_bit > 0.0 else None
    return None


def bytes_sent(few: int, many: int) -> bool:
    """Print what a step sends by the interfaces' counters and by the formula; whether these agree within 2 %.

    Two trials of unlike length tell what a step adds, without all that happens around the steps.
    """
    holds = True
    num_elements = _WIDER.num_parameters / _HYBRID.data_parallel_shard_degree
    for name, layout in LAYOUTS.items():
        specs = (trial(replace(layout, micro_batch_size=1), TrialSettings().just_steps(steps)) for steps in (few, many))
        seen = [run(replace(spec, model=_WIDER, workload=_FEW_TOKENS), None).sent_bytes for spec in specs]
        counted = (seen[1] - seen[0]) / (many - few) / layout.world_size
        formula = sent_bytes(layout, num_elements, 4.0)
        holds &= abs(counted / formula - 1) <= 0.02
        _say(f"{name:12}{counted:11.0f} B per step and rank, formula {formula:11.0f}, {counted / formula - 1:+.2%}")
    return holds


def losses(num_steps: int, seeds: Sequence[int], bits_per_s: float | None) -> bool:
    """Print what exchanges learn over a slow link; whether one that is lossy comes within 2 % of full exchange.

    That one is trained over a link that is not shaped: it learns the same bits there, in a tenth of the time.
    """
    settings = TrialSettings(num_languages=2, num_validation_batches=2, timeout_s=3600.0).just_steps(num_steps)
    _say(f"validation loss of both languages behind {num_steps} steps, seeds {seeds}, {_name(bits_per_s)}")
    found: dict[str, list[float]] = {}
    for name, layout in LAYOUTS.items():
        link = None if name == "full" else bits_per_s
        of_layout = replace(settings, learning_rate=_LEARNING_RATES.get(name, 1e-3))
        seen = [run(trial(layout, of_layout, seed), link).measurement.validation_loss for seed in seeds]
        found[name] = [loss for loss in seen if loss is not None]
        of_full = mean(found[name]) / mean(found["full"]) - 1
        each = " ".join(f"{loss:.4f}" for loss in found[name])
        _say(f"{name:12}{mean(found[name]):8.4f}  ({each})  {of_full:+.2%} of full")
    best = min(mean(found[name]) for name in LAYOUTS if name != "full")
    return best <= 1.02 * mean(found["full"])


def _name(bits_per_s: float | None) -> str:
    return "not shaped" if bits_per_s is None else f"{bits_per_s / _MBIT:.0f} Mbit/s"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that are named, or all; 1 where a bound does not hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.lossy_networks", description=__doc__)
    parser.add_argument("parts", nargs="*", default=["times", "bytes", "losses"])
    parser.add_argument("--steps", type=int, default=200, help="of a training whose loss counts")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    chosen = parser.parse_args(arguments)
    holds = True
    if "times" in chosen.parts:
        holds &= times(num_steps=17)  # a period of DiLoCo and a step
    if "bytes" in chosen.parts:
        holds &= bytes_sent(few=16, many=48)
    if "losses" in chosen.parts:
        holds &= losses(chosen.steps, chosen.seeds, _BANDWIDTHS[0])
    _say("every bound holds" if holds else "a bound does not hold")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
