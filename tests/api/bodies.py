"""Bodies of requests that can be answered, for tests to change."""

from __future__ import annotations

from typing import Any

from autotuner.core.codec import to_plain
from tests.builders import cpu_cluster, cpu_layout, tiny_model

CPU: dict[str, Any] = {
    "model": to_plain(tiny_model()),
    "cluster": to_plain(cpu_cluster()),
    "workload": {"seq_len": 64, "global_batch_size": 8},
}
EIGHT: dict[str, Any] = {
    "model": "llama-3-8b",
    "cluster": "h100:8",
    "workload": {"seq_len": 4096, "global_batch_size": 64},
}
LARGE: dict[str, Any] = {
    "model": "llama-3-8b",
    "cluster": "h100:64",
    "workload": {"seq_len": 8192, "global_batch_size": 64},
}
DEMO: dict[str, Any] = {
    "model": "llama-demo",
    "workload": {"seq_len": 1024, "global_batch_size": 1152},
    "limit": 1,
}
PLAN: dict[str, Any] = {
    "model": "llama-3-8b",
    "workload": {"seq_len": 4096, "global_batch_size": 256},
    "goal": {"num_tokens": 1e11, "deadline_s": 20 * 86_400.0},
    "accelerators": ["h100"],
    "sizes": [16, 32],
    "space": {"recompute": ["none"], "tensor_parallel_degree": [1], "pipeline_parallel_degree": [1]},
}
ON_TWO: dict[str, Any] = {
    "model": "gpt-3-125m",
    "cluster": "h100:2",
    "workload": {"seq_len": 256, "global_batch_size": 8},
}
TWO_REPLICAS = {"data_parallel_replicate_degree": 2, "precision": "bf16", "attention_kernel": "flash"}
SWEEP_OF_NIGHT = ON_TWO | {"space": {"precision": ["bf16"], "attention_kernel": ["flash"]}}
NIGHTLY: dict[str, Any] = {
    "name": "nightly",
    "cron": "0  2 * * *",
    "time_zone": "Europe/Berlin",
    "sweep": SWEEP_OF_NIGHT,
    "incumbent": TWO_REPLICAS,
}
GATE: dict[str, Any] = CPU | {
    "layout": to_plain(cpu_layout(data_parallel_replicate_degree=2)),
    "baseline": "main",
}
STUDY: dict[str, Any] = ON_TWO | {
    "layout": TWO_REPLICAS,
    "target_loss": 5.0,
    "space": {"global_batch_sizes": [8, 64], "data_parallel_degrees": [1, 2]},
    "name": "after the sweep",
}
WEBHOOK = {"name": "ours", "url": "https://hooks.slack.com/services/T000/B000/credential"}
