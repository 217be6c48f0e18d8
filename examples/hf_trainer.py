"""Hugging Face's Trainer as it comes, with DeepSpeed's ZeRO or without: a trainer for sweeps to try.

Arguments are those of ``transformers.TrainingArguments``; ``examples/trainers.toml`` registers it twice, told its
layout by DeepSpeed's configuration and by arguments. It trains a Llama of the trial's shapes on random tokens, from the
same first weights and on the same sequences in every layout, so that losses can be compared. What the autotuner needs
of it is the class ``Report``; ``RanAsAsked`` is worth copying too.
"""

from __future__ import annotations

import math
from typing import Any

import deepspeed
import torch
from transformers import (
    HfArgumentParser,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

import autotuner_report

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # compiled at the start, for inference

STAGES = ("none", "optimizer", "gradients", "parameters")
"""Shard levels by ZeRO stage."""


class Report(TrainerCallback):  # type: ignore[misc]  # transformers has no types
    """Tells the autotuner of each step; it needs ``--logging_steps 1``."""

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Begin the first step."""
        self.report = autotuner_report.start()

    def on_log(self, *_: Any, logs: dict[str, Any], **__: Any) -> None:
        """End a step."""
        if "loss" in logs:
            self.report.step(loss=logs["loss"])


class RanAsAsked(TrainerCallback):  # type: ignore[misc]  # transformers has no types
    """Stops what does not run as it was asked to: launchers fall back to less without a word."""

    def __init__(self, layout: dict[str, Any]) -> None:
        self.layout = layout
        self.trainer: Any = None

    def on_train_begin(self, args: TrainingArguments, *_: Any, **__: Any) -> None:
        """Compare the processes, what wraps the model, and what became of its parameters."""
        engine = self.trainer.model_wrapped
        ran = {
            "ranks": args.world_size,
            "engine": type(engine).__name__,
            "stage": engine.zero_optimization_stage() if args.deepspeed else 0,
            "sharded parameters": all(hasattr(p, "ds_tensor") for p in engine.parameters()),
        }
        degrees = [value for name, value in self.layout.items() if name.endswith("_degree") and "expert" not in name]
        ranks, stage = math.prod(degrees), STAGES.index(self.layout["shard_level"])
        replicas = "DistributedDataParallel" if ranks > 1 else "LlamaForCausalLM"
        asked = {
            "ranks": ranks,
            "engine": "DeepSpeedEngine" if args.deepspeed else replicas,
            "stage": stage,
            "sharded parameters": stage == 3,
        }
        if ran != asked:
            raise RuntimeError(f"asked for {asked}, and {ran} runs")


class Sequences(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Random tokens, the same for a seed."""

    def __init__(self, num_sequences: int, seq_len: int, vocab_size: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(vocab_size, (num_sequences, seq_len), generator=generator)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def llama(shapes: dict[str, Any]) -> LlamaForCausalLM:
    """A Llama of a model's shapes, as the autotuner says them."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=shapes["vocab_size"],
            hidden_size=shapes["hidden_size"],
            intermediate_size=shapes["ffn_size"],
            num_hidden_layers=shapes["num_layers"],
            num_attention_heads=shapes["num_heads"],
            num_key_value_heads=shapes["num_kv_heads"],
            head_dim=shapes["head_dim"],
            tie_word_embeddings=shapes["tied_embeddings"],
        )
    )


def main() -> None:
    """Train as many steps as are asked for."""
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    spec = autotuner_report.spec()
    if spec is None:
        raise SystemExit("AUTOTUNER_SPEC says no model: start it by a sweep that names it as its trainer")
    set_seed(args.seed)
    workload = spec["workload"]
    num_sequences = workload["global_batch_size"] * args.max_steps
    data = Sequences(num_sequences, workload["seq_len"], spec["model"]["vocab_size"], args.seed)
    check = RanAsAsked(spec["layout"])
    check.trainer = Trainer(model=llama(spec["model"]), args=args, train_dataset=data, callbacks=[check, Report()])
    check.trainer.train()


if __name__ == "__main__":
    main()
