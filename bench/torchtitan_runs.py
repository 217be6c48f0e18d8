"""Whether torchtitan 0.2 trains by the job files that are exported for it, on two cores.

``python -m bench.torchtitan_runs INTERPRETER`` writes a job file for each of some layouts of torchtitan's own debug
model and has the interpreter, one that has torchtitan 0.2.2 with all that it asks for, take two steps by it under
torchrun. It prints what torchtitan says of batch, stages and loss. torchtitan counts on GPUs in a few places, which are
answered for it (``_ON_CORES``); its text and tokenizer are made up. Losses differ between layouts: torchtitan starts
from other random weights in each.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from autotuner.catalog.hardware import load_cluster
from autotuner.core.choices import PipelineSchedule, Precision, Recompute, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import RULES, require_legal
from autotuner.core.workload import Workload
from autotuner.export.torchtitan.catalog import DEBUG_MODEL, spec_of
from autotuner.export.torchtitan.read import TORCHTITAN
from autotuner.export.torchtitan.rules import DDP_BUCKET_BYTES

_PLAIN = Layout(precision=Precision.FP32)
_FSDP = replace(_PLAIN, data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS)
_TENSOR = replace(_PLAIN, tensor_parallel_degree=2, sequence_parallel=True)
_PIPELINE = replace(
    _PLAIN, pipeline_parallel_degree=2, first_stage_less_layers=1, last_stage_less_layers=1, micro_batch_size=1
)
_LAYOUTS = (
    replace(_PLAIN, data_parallel_replicate_degree=2, gradient_bucket_bytes=DDP_BUCKET_BYTES, micro_batch_size=2),
    replace(_FSDP, reshard_after_forward=True, recompute=Recompute.SELECTIVE, micro_batch_size=2),
    replace(_FSDP, precision=Precision.BF16, fp32_gradient_reduce=True),
    replace(_TENSOR, micro_batch_size=2),
    replace(_TENSOR, loss_parallel=False, recompute=Recompute.FULL, recompute_every=2),
    _PIPELINE,
    replace(_PIPELINE, pipeline_schedule=PipelineSchedule.GPIPE, recompute=Recompute.FULL, micro_batch_size=2),
    replace(_PIPELINE, pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B, virtual_stages_per_rank=4),
    replace(_PIPELINE, pipeline_schedule=PipelineSchedule.ZERO_BUBBLE, virtual_stages_per_rank=2),
    replace(_PIPELINE, pipeline_schedule=PipelineSchedule.ZBV, virtual_stages_per_rank=2),
)

_ASSETS = """
import json, random
from pathlib import Path
from tokenizers import Tokenizer, models, pre_tokenizers
words = [f"word{number}" for number in range(100)]
data, assets = Path("tests/assets/c4_test"), Path("tests/assets/tokenizer")
for folder in (data, assets):
    folder.mkdir(parents=True)
texts = ({"text": " ".join(random.choices(words, k=300))} for _ in range(400))
(data / "data.json").write_text("".join(json.dumps(text) + "\\n" for text in texts))
numbers = {word: number for number, word in enumerate(["<unk>", "<s>", "</s>", *words])}
tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.add_special_tokens(["<s>", "</s>"])
tokenizer.save(str(assets / "tokenizer.json"))
(assets / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
"""
"""What the debug model's default settings read, by the names that they read it under."""

_ON_CORES = """
import types, torch, torch._utils
torch._utils._get_available_device_type = lambda: "cpu"
torch.cpu.get_device_name = lambda device=None: "cpu"
torch.cpu.get_device_properties = lambda device=None: types.SimpleNamespace(total_memory=2**32, name="cpu")
torch.cpu.memory_stats = lambda device=None: {}
torch.cpu.reset_peak_memory_stats = torch.cpu.empty_cache = lambda device=None: None
from torch.distributed.fsdp import FSDPModule
divide = FSDPModule.set_gradient_divide_factor
def divided(self, factor):
    self.set_force_sum_reduction_for_comms(True)  # gloo multiplies nothing while it sums
    divide(self, factor)
FSDPModule.set_gradient_divide_factor = divided
import torchtitan.distributed.utils as utils
utils.set_pg_timeouts = lambda *arguments, **named: None
torch.set_num_threads(1)
from torchtitan.train import Trainer, main
main(Trainer)
"""


def main() -> None:
    """Print a line for each layout."""
    parser = argparse.ArgumentParser(prog="python -m bench.torchtitan_runs", description="Train by exported job files.")
    parser.add_argument("interpreter", help="a Python that has torchtitan 0.2.2 and what it asks for")
    interpreter = parser.parse_args().interpreter
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([interpreter, "-c", _ASSETS], cwd=folder, check=True)
        (folder / "on_cores.py").write_text(_ON_CORES)
        for layout in _LAYOUTS:
            sys.stdout.write(f"{layout}: {'; '.join(_said(_trained(interpreter, folder, layout)))}\n")
            sys.stdout.flush()


def _trained(interpreter: str, folder: Path, layout: Layout) -> subprocess.CompletedProcess[str]:
    model, _ = spec_of(*DEBUG_MODEL, TORCHTITAN.version)
    assert model is not None
    job = Job(model=model, cluster=load_cluster("cpu:2"), workload=Workload(seq_len=64, global_batch_size=8))
    require_legal(layout, job, (*RULES, *TORCHTITAN.rules))
    (file,) = TORCHTITAN.write(job, layout).files
    (folder / file.name).write_text(file.text)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(layout.world_size))
    flags = ("--training.steps", "2", "--lr_scheduler.warmup_steps", "1", "--metrics.log_freq", "1")
    return subprocess.run(
        [interpreter, *launcher, "on_cores.py", "--job.config_file", file.name, *flags],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _said(process: subprocess.CompletedProcess[str]) -> Iterator[str]:
    text = re.sub(r"\x1b\[[0-9;]*m", "", process.stdout + process.stderr)
    for pattern in (
        r"local batch size \d+, global batch size \d+, gradient accumulation steps \d+",
        r"with \d+ microb.*",
    ):
        yield from re.findall(pattern, text)[:1]
    losses = dict.fromkeys(re.findall(r"step:  2  loss: +([0-9.]+)", text))
    yield f"loss {', '.join(losses)}" if losses else f"failed ({process.returncode}): {text[-300:]}"


if __name__ == "__main__":
    main()
