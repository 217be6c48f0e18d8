"""A training loop that the autotuner can sweep: plain torch with FSDP2 and tensor parallelism, and three lines for it.

    torchrun --nproc-per-node 2 examples/train.py --data-parallel-shard-degree 2 --shard-level parameters

Copy it and put your model and data in. A layout comes as arguments, the model's shapes from the autotuner if it asks.
"""

import argparse
import os
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu
from torch.utils.checkpoint import checkpoint

import autotuner_report

DEGREES = ("data_parallel_replicate_degree", "data_parallel_shard_degree", "tensor_parallel_degree")  # outermost first
FIELDS = {"steps": 10, "seq_len": 64, "global_batch_size": 8, "micro_batch_size": 1, **dict.fromkeys(DEGREES, 1)}
CHOICES = {"recompute": ("none", "full"), "precision": ("fp32", "bf16"), "attention_kernel": ("flash",)}
CHOICES |= {"shard_level": ("none", "parameters")}
SMALL = {"num_layers": 4, "hidden_size": 64, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "ffn_size": 128}
SMALL |= {"vocab_size": 256}


class Layer(nn.Module):
    def __init__(self, shape: dict[str, Any], recompute: str) -> None:
        super().__init__()
        hidden, self.head_dim, self.recompute = shape["hidden_size"], shape["head_dim"], recompute == "full"
        width, kv_width = shape["num_heads"] * self.head_dim, shape["num_kv_heads"] * self.head_dim
        linear = partial(nn.Linear, bias=False)
        self.attention_norm, self.mlp_norm = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.query, self.key, self.value = linear(hidden, width), linear(hidden, kv_width), linear(hidden, kv_width)
        self.gate, self.up = linear(hidden, shape["ffn_size"]), linear(hidden, shape["ffn_size"])
        self.output, self.down = linear(width, hidden), linear(shape["ffn_size"], hidden)

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.block, x, use_reentrant=False) if self.recompute else self.block(x)

    def block(self, x: Tensor) -> Any:  # a tensor rank has some of the heads, and a part of the width
        h, parts = self.attention_norm(x), (self.query, self.key, self.value)
        q, k, v = (part(h).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in parts)
        attended = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.output(attended.transpose(1, 2).flatten(2))
        h = self.mlp_norm(x)
        return x + self.down(silu(self.gate(h)) * self.up(h))


def arguments() -> argparse.Namespace:
    """Return the options of a layout that this loop reads; stop at others, so that no layout is measured as another."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name, default in FIELDS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    for name, words in CHOICES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", choices=words, default=words[0])
    parser.add_argument("--reshard-after-forward", action=argparse.BooleanOptionalAction, default=False)
    return parser.parse_args()


def parallel_model(shape: dict[str, Any], args: argparse.Namespace, mesh: DeviceMesh) -> nn.Sequential:
    """Return the model, with equal first values in every layout: built whole, split over tensor ranks, then sharded."""
    torch.manual_seed(0)
    layers = [Layer(shape, args.recompute) for _ in range(shape["num_layers"])]
    head = nn.Linear(shape["hidden_size"], shape["vocab_size"], bias=False)
    embedding, norm = nn.Embedding(shape["vocab_size"], shape["hidden_size"]), nn.RMSNorm(shape["hidden_size"])
    model = nn.Sequential(embedding, *layers, norm, head).to(mesh.device_type)
    columns, rows = ("query", "key", "value", "gate", "up"), ("output", "down")
    dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
    sharded = partial(fully_shard, mesh=mesh["dp_replicate", "dp_shard"], mp_policy=MixedPrecisionPolicy(dtype))
    for layer in layers:
        if args.tensor_parallel_degree > 1:
            plan = {**{name: ColwiseParallel() for name in columns}, **{name: RowwiseParallel() for name in rows}}
            parallelize_module(layer, mesh["tp"], plan)
        sharded(layer, reshard_after_forward=args.reshard_after_forward)
    if args.tensor_parallel_degree > 1:
        parallelize_module(
            head, mesh["tp"], ColwiseParallel(use_local_output=False)
        )  # each keeps its part of the logits
    sharded(model, reshard_after_forward=args.reshard_after_forward)
    return model


def main() -> None:
    args, spec = arguments(), autotuner_report.spec()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    degrees = tuple(getattr(args, name) for name in DEGREES)
    mesh = init_device_mesh(device, degrees, mesh_dim_names=("dp_replicate", "dp_shard", "tp"))
    num_replicas, replica = degrees[0] * degrees[1], dist.get_rank() // degrees[2]
    shape = spec["model"] if spec else SMALL
    model: Any = parallel_model(shape, args, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)  # its parameters lie on several meshes
    report = autotuner_report.start()
    for step in range(args.steps):
        size, generator = (args.global_batch_size, args.seq_len + 1), torch.Generator().manual_seed(step)
        batch = torch.randint(shape["vocab_size"], size, generator=generator)  # your data; each replica takes its part
        micro_batches = batch.chunk(num_replicas)[replica].to(device).split(args.micro_batch_size)
        mean = torch.zeros((), device=device)
        for index, tokens in enumerate(micro_batches):
            model.set_requires_gradient_sync(index == len(micro_batches) - 1)  # accumulate, then reduce once
            with loss_parallel() if degrees[2] > 1 else nullcontext():
                logits = model(tokens[:, :-1]).flatten(0, 1).float()
                loss = cross_entropy(logits, tokens[:, 1:].flatten()) / len(micro_batches)
                loss.backward()
            loss = loss.detach()
            mean += (loss.to_local() if isinstance(loss, DTensor) else loss) / dist.get_world_size()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(mean)
        report.step(loss=mean, tokens=args.global_batch_size * args.seq_len)
        if dist.get_rank() == 0:
            print(f"step {step} loss {mean.item():.6f}", flush=True)
    dist.barrier()
    os._exit(0)  # taking gloo's groups down aborts now and then (torch 2.13), after all is done


if __name__ == "__main__":
    main()
