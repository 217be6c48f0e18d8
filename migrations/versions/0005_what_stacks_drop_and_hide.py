"""What a stack recomputes selectively is named by part, and what it hides of tensor collectives is a share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_sweeps = sa.table("sweeps", sa.column("id", sa.Text()), sa.column("request", sa.Text()))


def upgrade() -> None:
    _rewrite_stacks(_named_by_part)


def downgrade() -> None:
    # Parts that the older release cannot name are dropped: it knows the attention core, and all but products.
    _rewrite_stacks(_named_by_switches)


def _rewrite_stacks(rewrite: Callable[[dict[str, Any]], None]) -> None:
    connection = op.get_bind()
    for sweep_id, request in connection.execute(sa.select(_sweeps.c.id, _sweeps.c.request)).all():
        document = json.loads(request)
        if "stack" not in document["job"]:
            continue
        rewrite(document)
        text = json.dumps(document, allow_nan=False, separators=(",", ":"))
        connection.execute(sa.update(_sweeps).where(_sweeps.c.id == sweep_id).values(request=text))


def _named_by_part(request: dict[str, Any]) -> None:
    stack = request["job"]["stack"]
    if "keeps_products" in stack:
        stack["selective_recompute"] = ["all_but_products" if stack.pop("keeps_products") else "core_attn"]
    if "hides_tensor_backward" in stack:
        stack["overlaps_tensor_backward"] = 1.0 if stack.pop("hides_tensor_backward") else 0.0


_OLD_ACCELERATOR = (
    *("name", "kind", "memory_bytes", "memory_bandwidth_bytes_per_s", "fp32_flop_per_s", "bf16_flop_per_s"),
    *("fp8_flop_per_s", "peak_source", "power_w", "sustained_share", "kernel_launch_s", "attention_kernels"),
    *("peak_is_measured", "host_bandwidth_bytes_per_s", "measured_gemm", "measured_attention"),
)
_OLD_LINK = (
    *("name", "bandwidth_bytes_per_s", "latency_s", "start_s", "ramp_s", "efficiency", "multicast_efficiency"),
    "congestion",
)
_OLD_STACK = (
    *("name", "sums_gradients_in_fp32", "balances_stages", "keeps_receive_buffers", "blocks_sends", "gathers_logits"),
    *("fills_buckets", "widens_context_gradients", "fuses_loss", "overlaps_data_parallel", "matrix_slowdown"),
    *("pointwise_traffic", "unfused_norm_traffic", "kernel_launch_s", "tensor_wait_s", "send_wait_s"),
    *("step_overhead_s", "unfused_norm_bytes", "scores_alive", "logits_copies", "scatter", "activation_overhead"),
    *("allowance_bytes", "keeps_products", "hides_tensor_backward"),
)


def _named_by_switches(request: dict[str, Any]) -> None:
    job = request["job"]
    stack, cluster = job["stack"], job["cluster"]
    stack["keeps_products"] = stack.get("selective_recompute") != ["core_attn"]
    stack["hides_tensor_backward"] = stack.get("overlaps_tensor_backward", 0.0) >= 0.5
    job["stack"] = {name: value for name, value in stack.items() if name in _OLD_STACK}
    cluster["accelerator"] = {k: v for k, v in cluster["accelerator"].items() if k in _OLD_ACCELERATOR}
    for link in ("intra_node_link", "inter_node_link"):
        cluster[link] = {name: value for name, value in cluster[link].items() if name in _OLD_LINK}
    cluster.pop("nvlink_domain", None)
    job.pop("calibration", None)
