"""Reads exports by the parsers of the trainers themselves, and prints what these understood.

    python -m tests.unit.exports.real_parsers < exports.json

It is a process of its own, since DeepSpeed, accelerate and transformers take seconds to be imported, change the
environment, and warn of much. A group of ``WORLD_SIZE`` ranks stands without its other ranks; ``ENVIRONMENT`` of
``test_real_parsers`` starts it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deepspeed
import torch.distributed as dist
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.parallelism_config import ParallelismConfig
from deepspeed.runtime.config import DeepSpeedConfig
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import HfArgumentParser, TrainingArguments

WORLD_SIZE = int(os.environ["WORLD_SIZE"])


class Asked(dict[str, Any]):
    """A configuration that remembers which of its names were asked for."""

    names: set[str]

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)

    def keys(self) -> Any:
        return self


class Ranks:
    """The ranks of a model-parallel group, as DeepSpeed asks for them."""

    def get_data_parallel_world_size(self) -> int:
        return WORLD_SIZE


def read_deepspeed(files: dict[str, str], _: list[str]) -> dict[str, Any]:
    """What ``DeepSpeedConfig`` makes of ``ds_config.json``."""
    asked = Asked(json.loads(files["ds_config.json"]))
    asked.names = set()
    config = DeepSpeedConfig(asked, mpu=Ranks())
    zero = config.zero_config
    return {
        "train_batch_size": config.train_batch_size,
        "gradient_accumulation_steps": config.gradient_accumulation_steps,
        "train_micro_batch_size_per_gpu": config.train_micro_batch_size_per_gpu,
        "bf16.enabled": config.bfloat16_config.enabled,
        "zero_optimization.stage": int(zero.stage),
        "zero_optimization.reduce_bucket_size": zero.reduce_bucket_size,
        "zero_optimization.stage3_max_reuse_distance": zero.max_reuse_distance,
        "zero_optimization.stage3_max_live_parameters": zero.max_live_parameters,
        "tensor_parallel.autotp_size": config.tensor_parallel_config.autotp_size,
        "tensor_parallel.vocab_parallel_lm_head": config.tensor_parallel_config.vocab_parallel_lm_head,
        "pipeline.stages": config.pipeline["stages"],
        "pipeline.activation_checkpoint_interval": config.pipeline["activation_checkpoint_interval"],
        "expert_parallel.enabled": config.expert_parallel_config and config.expert_parallel_config.enabled,
        "expert_parallel.autoep_size": config.expert_parallel_config and config.expert_parallel_config.autoep_size,
        "communication_data_type": _dtype(config.communication_data_type),
        "seq_parallel_communication_data_type": _dtype(config.seq_parallel_communication_data_type),
        "never asked for": sorted(set(dict(asked)) - asked.names),
    }


def _dtype(dtype: object) -> str | None:
    return {"torch.float32": "fp32", "torch.bfloat16": "bf16", "None": None}[str(dtype)]


def read_accelerate(files: dict[str, str], _: list[str]) -> dict[str, Any]:
    """The configuration as ``accelerate launch`` merges it, and the sizes that its processes would read."""
    config = load_config_from_file("accelerate.yaml")
    args, *_ = _validate_launch_command(launch_command_parser().parse_args(["--config_file=accelerate.yaml", "x.py"]))
    sizes = {name: int(getattr(args, f"parallelism_config_{name}")) for name in _SIZES}
    ParallelismConfig(**sizes)
    return {
        "distributed_type": config.distributed_type.value,
        "num_processes": args.num_processes,
        "mixed_precision": args.mixed_precision,
        "fp8_backend": args.fp8_backend,
        "fsdp_version": int(args.fsdp_version),
        "fsdp_reshard_after_forward": str(args.fsdp_reshard_after_forward).lower() == "true",
        "fsdp_activation_checkpointing": str(args.fsdp_activation_checkpointing).lower() == "true",
        "fsdp_activation_checkpointing_offload": str(args.fsdp_activation_checkpointing_offload).lower() == "true",
        "cp_comm_strategy": args.parallelism_config_cp_comm_strategy,
        "dynamo_backend": str(args.dynamo_backend).lower(),
        "deepspeed_config_file": args.deepspeed_config_file,
        "unknown": sorted(set(_leaves(yaml.safe_load(files["accelerate.yaml"]))) - set(vars(args)) - _OF_THE_FILE),
        **sizes,
    }


_SIZES = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size")
_OF_THE_FILE = {"compute_environment", "distributed_type", "backend"}
"""Read by the configuration's own class, or under another name (``fp8_backend``)."""


def _leaves(config: dict[str, Any]) -> list[str]:
    return [leaf for name, value in config.items() for leaf in (_leaves(value) if isinstance(value, dict) else [name])]


def read_transformers(_: dict[str, str], arguments: list[str]) -> dict[str, Any]:
    """What ``TrainingArguments`` makes of the arguments."""
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(
        [*arguments, "--use_cpu", "True", "--output_dir", "x", "--report_to", "none"]
    )
    zero = args.hf_deepspeed_config.config if args.deepspeed else {}
    fsdp = args._process_fsdp_args() or {}
    return {
        "world_size": args.world_size,
        "per_device_train_batch_size": args.per_device_train_batch_size,
        "gradient_accumulation_steps": args.gradient_accumulation_steps,
        "bf16": args.bf16,
        "optim": str(args.optim.value),
        "torch_compile": args.torch_compile,
        "ddp_bucket_cap_mb": args.ddp_bucket_cap_mb,
        "recompute": bool(args.activation_checkpointing or fsdp.get("activation_checkpointing")),
        "kwargs": args.activation_checkpointing_kwargs,
        "fsdp_version": fsdp.get("fsdp_version"),
        "reshard_after_forward": fsdp.get("reshard_after_forward"),
        "stage": zero.get("zero_optimization", {}).get("stage"),
        "train_batch_size": zero.get("train_batch_size"),
    }


READERS = {"deepspeed": read_deepspeed, "accelerate": read_accelerate, "transformers": read_transformers}


def understood(export: dict[str, Any]) -> dict[str, Any]:
    """What the parser of an export's format understood, or why it did not."""
    with TemporaryDirectory() as directory, contextlib.chdir(directory):
        for name, text in export["files"].items():
            Path(name).write_text(text)
        try:
            return READERS[export["format"]](export["files"], export["arguments"])
        except BaseException as error:  # argparse exits
            return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Read exports from standard input and print a JSON list."""
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # nothing is compiled
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=WORLD_SIZE)
    exports = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        deepspeed.init_distributed(dist_backend="fake", verbose=False)
        answers = [understood(export) for export in exports]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
