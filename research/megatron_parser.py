"""Tests that Megatron-LM's own parser accepts the exported arguments and understands the same layout.

``python -m research.megatron_parser CHECKOUT`` writes arguments for layouts of several jobs. A process that finds a
checkout of Megatron-LM (core_v0.16.1 or core_v0.19.0) first on its path parses and validates them and builds the
model's configuration. The command prints how many exports are accepted, for how many the namespace that Megatron prints
is read back as the same layout, and its verdict on published launch scripts. The process needs ``six``, ``regex`` and
``triton``. Facts that only a GPU could tell are simulated: a Hopper GPU with Transformer Engine 2.8; rotary embeddings
are not fused.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.catalog.software import load_stack
from autotuner.core.choices import AttentionKernel, ContextExchange, Fp8Recipe, Precision, Recompute, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import RULES
from autotuner.core.space import SearchSpace
from autotuner.core.stages import stage_sizes
from autotuner.core.workload import Workload
from autotuner.exports.formats import export, read
from autotuner.exports.megatron.rules import MEGATRON_RULES
from autotuner.exports.shared.command import launched
from autotuner.search.space.legal import legal_layouts

_JOBS = (
    ("gpt-3-175b", "a100:128", 2048),
    ("llama-3-8b", "h100:8", 8192),
    ("llama-3-70b", "h100:64", 8192),
    ("mixtral-8x7b", "h100:64", 4096),
    ("qwen3-30b-a3b", "h100:32", 4096),
    ("deepseek-v3", "h100:256", 4096),
)

_LAYOUTS_PER_JOB = 40

_SCRIPTS = (
    "examples/gpt3/train_gpt3_175b_distributed.sh",
    "examples/llama/train_llama3_8b_h100_fp8.sh",
    "examples/megatron_fsdp/train_llama3_8b_fsdp_h100_fp8.sh",
    "examples/mixtral/train_mixtral_8x7b_distributed.sh",
)

_SCHEDULE = ("--mock-data", "--tokenizer-type", "NullTokenizer", "--lr", "1e-4", "--train-iters", "10")
"""Arguments that an export leaves to its user."""

_PARSER = """
import contextlib, io, json, os, sys, typing
if not hasattr(typing, "override"):
    import typing_extensions
    typing.override = typing_extensions.override
import torch
from packaging.version import Version
import megatron.core.utils as utils
utils.get_te_version = lambda: Version("2.8.0")
torch.cuda.get_device_capability = lambda *ignored: (9, 0)
import megatron.training.arguments as arguments
arguments.get_device_arch_version = lambda: 9

def told(case):
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ.update(case["environment"], RANK="0", WORLD_SIZE=str(case["num_ranks"]))
    sys.argv = ["pretrain_gpt.py", *case["arguments"]]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            args = arguments.validate_args(arguments.parse_args(), {})
            arguments.core_transformer_config_from_args(args)
        except (Exception, SystemExit) as error:
            last = printed.getvalue().strip().splitlines()[-1:]
            return {"refused": f"{type(error).__name__}: {error} {last if isinstance(error, SystemExit) else ''}"}
    return {"printed": printed.getvalue()}

answers = [told(case) for case in json.load(sys.stdin)]
sys.stdout.write("\\n" + json.dumps(answers))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """Arguments to parse, with the number of ranks that they are for."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    num_ranks: int


def main() -> None:
    """Print how many exported layouts Megatron-LM accepts, and how many of them it understands as the same layout."""
    parser = argparse.ArgumentParser(prog="python -m research.megatron_parser", description=__doc__)
    parser.add_argument("checkout", type=Path, help="a checkout of NVIDIA/Megatron-LM")
    checkout = parser.parse_args().checkout
    launches = [launch for names in _JOBS for launch in _launches(*names)]
    scripts = [path for name in _SCRIPTS if (path := checkout / name).exists()]
    answers = _parsed(checkout, [*(_exported(*launch) for launch in launches), *map(_published, scripts)])
    _say_layouts(launches, answers[: len(launches)])
    for path, answer in zip(scripts, answers[len(launches) :], strict=True):
        _say(f"{path.name}: {_script_verdict(path, answer)}")


# ---------------------------------------------------------------- cases
def _launches(model: str, cluster: str, seq_len: int) -> Iterator[tuple[Job, Layout]]:
    """Yield layouts spread over the whole space that Megatron supports."""
    job = Job(
        model=load_model(model),
        cluster=load_cluster(cluster),
        workload=Workload(seq_len=seq_len, global_batch_size=1024),
        stack=load_stack("megatron-core"),
    )
    for num_axes, space in enumerate(_spaces(job)):
        found = legal_layouts(job, space, (*RULES, *MEGATRON_RULES))
        wanted = _LAYOUTS_PER_JOB // 2
        step = max(1, len(found) // wanted)
        for index in range(num_axes, len(found), step)[:wanted]:
            yield job, found.row(index)


def _spaces(job: Job) -> Iterator[SearchSpace]:
    """Yield two spaces: one of degrees, pipelines and sharding, one of number formats, kernels and memory options."""
    flash = (AttentionKernel.FLASH,)
    yield SearchSpace(
        attention_kernel=flash,
        precision=(Precision.BF16,),
        recompute=(Recompute.NONE, Recompute.FULL),
        shard_level=tuple(ShardLevel),
        reshard_after_forward=(False, True),
        micro_batch_size=(1, 2),
        context_parallel_degree=(1, 2),
        fp32_gradient_reduce=(True,),
    )
    precisions = job.cluster.accelerator.precisions
    yield SearchSpace(
        attention_kernel=(AttentionKernel.FLASH, AttentionKernel.CUDNN, AttentionKernel.MATH),
        precision=tuple(p for p in (Precision.BF16, Precision.FP8) if p in precisions),
        fp8_recipe=(Fp8Recipe.TENSORWISE, Fp8Recipe.DELAYED, Fp8Recipe.BLOCKWISE),
        recompute=tuple(Recompute),
        shard_level=(ShardLevel.NONE, ShardLevel.OPTIMIZER),
        offload_activations=(False, True),
        async_tensor_parallel=(False, True),
        context_exchange=tuple(ContextExchange),
        context_parallel_degree=(1, 2),
        micro_batch_size=(1,),
        gradient_bucket_bytes=(25 * 2**20, 2**28),
        fp32_gradient_reduce=(True,),
    )


def _exported(job: Job, layout: Layout) -> _Case:
    exported = export(job, layout, "megatron-lm")
    arguments = (*exported.arguments, *_SCHEDULE, *_unfused(exported.arguments))
    return _Case(arguments=arguments, environment=exported.environment, num_ranks=layout.world_size)


def _published(path: Path) -> _Case:
    """Return a published script's arguments, for as many ranks as it is read to need."""
    text = path.read_text()
    found, command = read(text, "megatron-lm"), launched(text)
    words = [w for name, values in command.arguments.values.items() for w in (f"--{name.replace('_', '-')}", *values)]
    environment = {k: v for k, v in command.variables.items() if k == "CUDA_DEVICE_MAX_CONNECTIONS"}
    return _Case(arguments=(*words, *_unfused(words)), environment=environment, num_ranks=found.layout.world_size)


def _unfused(arguments: Iterable[str]) -> tuple[str, ...]:
    """Return the arguments without fused rotary embeddings, which need Transformer Engine."""
    return ("--no-rope-fusion",) if "rope" in arguments else ()


def _parsed(checkout: Path, cases: Sequence[_Case]) -> list[dict[str, Any]]:
    path = os.pathsep.join([str(checkout), os.environ.get("PYTHONPATH", "")])
    asked = [
        {"arguments": list(c.arguments), "environment": dict(c.environment), "num_ranks": c.num_ranks} for c in cases
    ]
    command = [sys.executable, "-W", "ignore", "-c", _PARSER]
    done = subprocess.run(
        command,
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return list(json.loads(done.stdout.splitlines()[-1]))


# ---------------------------------------------------------------- verdicts
def _say_layouts(launches: Sequence[tuple[Job, Layout]], answers: Sequence[Mapping[str, str]]) -> None:
    refused = [(launch, a["refused"]) for launch, a in zip(launches, answers, strict=True) if "refused" in a]
    taken = [(launch, a["printed"]) for launch, a in zip(launches, answers, strict=True) if "printed" in a]
    differing = [(launch, found) for launch, printed in taken if (found := _difference(*launch, printed))]
    _say(
        f"{len(launches)} layouts of {len(_JOBS)} jobs exported: {len(taken)} taken, of which "
        f"{len(taken) - len(differing)} are read back from the printed namespace as they were"
    )
    for (job, layout), said in [*refused, *differing][:12]:
        _say(f"  {job.model.name}: {layout}: {said[:300]}")


def _difference(job: Job, layout: Layout, printed: str) -> str:
    """Return how the namespace that Megatron prints differs from the layout; empty if it is the same."""
    found = read(printed, "megatron-lm")
    if found.num_ranks != layout.world_size:
        return f"{found.num_ranks} ranks"
    if _sizes(job, found.layout) != _sizes(job, layout):
        return f"stages of {_sizes(job, found.layout)} layers, not {_sizes(job, layout)}"
    ours, theirs = _comparable(job, layout), _comparable(job, found.layout)
    return "" if ours == theirs else f"read as {theirs}, written as {ours}"


def _sizes(job: Job, layout: Layout) -> tuple[int, ...]:
    ends = layout.first_stage_less_layers, layout.last_stage_less_layers
    return stage_sizes(job.model.num_layers, layout.num_stages, *ends)


def _comparable(job: Job, layout: Layout) -> Layout:
    """Return the layout in a form that can be compared.

    The shorter first and last stages are compared as stages, and fp32 sums include those that the stack does by itself.
    """
    several = layout.data_parallel_degree * layout.context_parallel_degree > 1
    wide = several and (layout.fp32_gradient_reduce or job.stack.sums_gradients_in_fp32)
    return replace(layout, first_stage_less_layers=0, last_stage_less_layers=0, fp32_gradient_reduce=wide)


def _script_verdict(path: Path, answer: Mapping[str, str]) -> str:
    if "refused" in answer:
        return f"refused: {answer['refused'][:200]}"
    ours, theirs = read(path.read_text(), "megatron-lm"), read(answer["printed"], "megatron-lm")
    same = "as its printed namespace is" if ours.layout == theirs.layout else f"and its namespace as {theirs.layout}"
    return f"taken, read as {ours.layout} {same}"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
