"""Tests that torchtitan 0.3's own parser accepts the exported modules and understands the same layout.

``python -m research.torchtitan_parser INTERPRETER`` writes modules for layouts of several jobs. The interpreter, which
needs torchtitan 0.3 and triton, parses each with torchtitan's ``ConfigManager``, which imports the module, builds the
model's configuration and checks it. The command prints how many agree in degrees, batch, stages, schedule,
recomputation, compilation, attention and converters, and if the presets that imports know equal those that torchtitan's
functions set. One check of torchtitan is simulated: that the device supports 8 bits or fewer, since a CPU does not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.choices import AttentionKernel, Fp8Recipe, PipelineSchedule, Precision, Recompute
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import RULES
from autotuner.core.space import SearchSpace
from autotuner.core.stages import stage_sizes
from autotuner.core.workload import Workload
from autotuner.exports.torchtitan.read import TORCHTITAN_CONFIG
from autotuner.exports.torchtitan.releases import SCHEDULES, presets
from autotuner.exports.torchtitan.rules import DEFAULT_SPACE_0_3, RULES_0_3
from autotuner.search.space.legal import legal_layouts

_JOBS = (
    ("llama-3.1-8b", "h100:16"),
    ("llama-3.1-70b", "b200:64"),
    ("llama-3.1-405b", "h100:512"),
    ("qwen3-30b-a3b", "h100:64"),
    ("deepseek-v3", "h100:256"),
)
"""Dense and sparse models that torchtitan registers, on devices with and without 4-bit formats."""

_LAYOUTS_PER_JOB = 40
_WORDS = {schedule: word for word, schedule in SCHEDULES.items()}
_FUNCTION = "layout_config"

_DEGREES = (
    *("data_parallel_replicate_degree", "data_parallel_shard_degree", "tensor_parallel_degree"),
    *("context_parallel_degree", "expert_parallel_degree", "pipeline_parallel_degree"),
)

_PARSER = """
import dataclasses, json, sys
import torchtitan.components.quantization.float8 as float8
import torchtitan.components.quantization.mx as mx
import torchtitan.components.quantization.nvfp4 as nvfp4
for module in (float8, mx, nvfp4):
    module.has_cuda_capability = lambda major, minor: True
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
from torchtitan.config import ConfigManager
from torchtitan.distributed.pipeline_parallel import _generate_llm_fqn_per_model_part as dealt
from torchtitan.models.common.attention import FlexAttention, VarlenAttention
from torchtitan.models.common.linear import Linear

def stages(p, layers):
    single = issubclass(get_schedule_class(p.pipeline_parallel_schedule), PipelineScheduleSingle)
    ends = p.pipeline_parallel_first_stage_less_layers, p.pipeline_parallel_last_stage_less_layers
    per_stage = p.pipeline_parallel_layers_per_stage
    count = p.pipeline_parallel_degree * (1 if single else 2)
    if per_stage is not None:
        count = -(-(layers + sum(ends)) // per_stage)
    return [sum(name.startswith("layers.") for name in part) for part in dealt(count, layers, *ends)]

def kinds(model, cls):
    return sorted({type(config).__qualname__.split(".")[-2] for _, config, _, _ in model.traverse(cls.Config)})

def told(arguments):
    config = ConfigManager().parse_args(arguments)
    model, p = config.model_spec.model, config.parallelism
    return {
        "parallelism": dataclasses.asdict(p),
        "training": dataclasses.asdict(config.training),
        "compile": dataclasses.asdict(config.compile),
        "implementation": config.optimizer.implementation,
        "activation_checkpoint": type(config.activation_checkpoint).__qualname__.split(".")[0],
        "stages": stages(p, len(model.layers)) if p.pipeline_parallel_degree > 1 else [len(model.layers)],
        "flavor": [config.model_spec.name, config.model_spec.flavor],
        "attention": kinds(model, FlexAttention) + kinds(model, VarlenAttention),
        "linear": kinds(model, Linear),
    }

answers = []
for arguments in json.load(sys.stdin):
    try:
        answers.append(told(arguments))
    except (Exception, SystemExit) as error:
        answers.append({"refused": f"{type(error).__name__}: {error}"})
json.dump(answers, sys.stdout)
"""


def main() -> None:
    """Print how many exported layouts torchtitan understands as the same layout, and how the other ones differ."""
    parser = argparse.ArgumentParser(prog="python -m research.torchtitan_parser", description=__doc__)
    parser.add_argument("interpreter", help="a Python that has torchtitan 0.3 and triton")
    interpreter = parser.parse_args().interpreter
    cases = [case for model, cluster in _JOBS for case in _cases(model, cluster)]
    with tempfile.TemporaryDirectory() as folder:
        answers = _parsed(interpreter, Path(folder), cases)
    verdicts = [
        (job, layout, _wrong(job, layout, answer)) for (job, layout), answer in zip(cases, answers, strict=True)
    ]
    wrong = [verdict for verdict in verdicts if verdict[2]]
    num_right = len(cases) - len(wrong)
    _say(f"{len(cases)} layouts of {len(_JOBS)} jobs exported: {num_right} parsed and of the same meaning")
    for job, layout, found in wrong[:10]:
        _say(f"  {job.model.name}: {layout}: {found}")
    _say_presets(interpreter)


def _cases(model: str, cluster: str) -> list[tuple[Job, Layout]]:
    """Return layouts spread over the whole space that torchtitan supports."""
    job = Job(
        model=load_model(model),
        cluster=load_cluster(cluster),
        workload=Workload(seq_len=8192, global_batch_size=2048),
    )
    space = SearchSpace(
        **DEFAULT_SPACE_0_3,
        precision=(Precision.FP32, Precision.BF16, Precision.FP8, Precision.NVFP4),
        recompute=tuple(Recompute),
        compiled=(False, True),
        pipeline_schedule=tuple(PipelineSchedule),
        context_parallel_degree=(1, 2),
        micro_batch_size=(1, 2),
        reshard_after_forward=(False, True),
    )
    found = legal_layouts(job, space, (*RULES, *RULES_0_3))
    step = max(1, len(found) // _LAYOUTS_PER_JOB)
    return [(job, found.row(index)) for index in range(0, len(found), step)][:_LAYOUTS_PER_JOB]


def _parsed(interpreter: str, folder: Path, cases: Sequence[tuple[Job, Layout]]) -> list[dict[str, Any]]:
    commands = []
    for number, (job, layout) in enumerate(cases):
        (file,) = TORCHTITAN_CONFIG.write(job, layout).files
        (folder / f"layout_{number}.py").write_text(file.text)
        commands.append(["--module", f"layout_{number}", "--config", _FUNCTION])
    return _run(interpreter, commands, folder)


def _run(interpreter: str, commands: Sequence[Sequence[str]], folder: Path) -> list[dict[str, Any]]:
    process = subprocess.run(
        [interpreter, "-c", _PARSER],
        input=json.dumps([list(command) for command in commands]),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        sys.exit(process.stderr)
    return list(json.loads(process.stdout.splitlines()[-1]))


def _wrong(job: Job, layout: Layout, answer: Mapping[str, Any]) -> str:
    """Return what torchtitan understood differently; empty if it understood the same layout."""
    if "refused" in answer:
        return str(answer["refused"])
    differences = [f"{name}: {is_} for {meant}" for name, is_, meant in _compared(job, layout, answer) if is_ != meant]
    return "; ".join(differences)


def _compared(job: Job, layout: Layout, answer: Mapping[str, Any]) -> Iterator[tuple[str, object, object]]:
    parallelism, training, pipelined = answer["parallelism"], answer["training"], layout.pipeline_parallel_degree > 1
    for name in _DEGREES:
        yield name, parallelism[name], getattr(layout, name)
    micro_batch = parallelism["pipeline_parallel_microbatch_size"] if pipelined else training["local_batch_size"]
    yield "micro-batch", micro_batch, layout.micro_batch_size
    accumulated = training["global_batch_size"] // (training["local_batch_size"] * layout.data_parallel_degree)
    num_micro_batches = accumulated * training["local_batch_size"] // micro_batch
    yield "micro-batches", num_micro_batches, job.workload.num_micro_batches(layout)
    ends = layout.first_stage_less_layers, layout.last_stage_less_layers
    yield "stages", answer["stages"], list(stage_sizes(job.model.num_layers, layout.num_stages, *ends))
    if pipelined:
        yield "schedule", parallelism["pipeline_parallel_schedule"], _WORDS[layout.pipeline_schedule]
    if layout.tensor_parallel_degree > 1:
        yield "sequence parallel", parallelism["enable_sequence_parallel"], layout.sequence_parallel
    yield "recompute", answer["activation_checkpoint"], _AC[layout.recompute]
    compiles = answer["compile"]["enable"] and "model" in answer["compile"]["components"]
    yield "compiled", compiles, layout.compiled
    yield "parameters", training["mixed_precision_param"], _FORMATS[layout.precision == Precision.FP32]
    kernels = {AttentionKernel.FLEX: ["FlexAttention"], AttentionKernel.FLASH: ["VarlenAttention"]}
    yield "attention", answer["attention"], kernels[layout.attention_kernel]
    yield "linear", _narrow(answer["linear"]), _LINEAR.get((layout.precision, layout.fp8_recipe), set())


_AC = {Recompute.NONE: "NoneType", Recompute.SELECTIVE: "SelectiveAC", Recompute.FULL: "FullAC"}
_FORMATS = ("bfloat16", "float32")
_LINEAR = {
    (Precision.FP8, Fp8Recipe.ROWWISE): {"Float8Linear"},
    (Precision.FP8, Fp8Recipe.MXFP8): {"MXFP8Linear"},
    (Precision.NVFP4, Fp8Recipe.TENSORWISE): {"NVFP4Linear"},
}


def _narrow(classes: Sequence[str]) -> set[str]:
    return {name for name in classes if name.startswith(("Float8", "MXFP8", "NVFP4"))}


def _say_presets(interpreter: str) -> None:
    commands = [["--module", str(said["model.name"]), "--config", name] for name, said in presets().items()]
    answers = _run(interpreter, commands, Path.cwd())
    wrong = {}
    for (name, said), answer in zip(presets().items(), answers, strict=True):
        differing = _unlike(said, answer) if "refused" not in answer else answer["refused"]
        if differing:
            wrong[name] = differing
    _say(f"{len(commands)} presets: {len(commands) - len(wrong)} are what torchtitan's functions set")
    for name, differing in wrong.items():
        _say(f"  {name}: {differing}")


def _unlike(said: Mapping[str, object], answer: Mapping[str, Any]) -> str:
    told = {
        "model.name": answer["flavor"][0],
        "model.flavor": answer["flavor"][1],
        "activation_checkpoint": {"SelectiveAC": "selective", "FullAC": "full"}.get(
            answer["activation_checkpoint"], "none"
        ),
        "model.attn_backend": "varlen" if "VarlenAttention" in answer["attention"] else "flex",
        "model.converters": [f"{name}Converter" for name in sorted(_narrow(answer["linear"]))] or None,
    }
    for section in ("parallelism", "training", "compile"):
        told |= {f"{section}.{name}": value for name, value in answer[section].items()}
    unlike = {name: (value, told.get(name)) for name, value in said.items() if told.get(name) != value}
    return str(unlike) if unlike else ""


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
