"""The catalog's law of attention kernels against the papers' figures and a published layer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from autotuner.core.choices import AttentionKernel
from autotuner.costmodel.layer.attention import AttentionShape, attention_s
from research.fit_kernels import attention_error, load_attention_law, load_speeds
from tests.published.tables import rows


@pytest.mark.parametrize(
    ("accelerator", "kernel", "median", "p90"),
    [
        # what research.fit_kernels prints for left-out panels, rounded up to the next percent
        ("a100-80gb", AttentionKernel.EFFICIENT, 0.06, 0.14),
        ("a100-80gb", AttentionKernel.FLASH_1, 0.07, 0.16),
        ("a100-80gb", AttentionKernel.FLASH, 0.03, 0.07),
        ("h100-sxm", AttentionKernel.FLASH_1, 0.07, 0.19),
        ("h100-sxm", AttentionKernel.FLASH, 0.07, 0.14),
        ("h100-sxm", AttentionKernel.FLASH_3, 0.07, 0.12),
    ],
)
def test_a_fused_kernel_is_as_near_its_figures_as_its_left_out_error(
    accelerator: str, kernel: AttentionKernel, median: float, p90: float
) -> None:
    error = np.abs(attention_error(load_speeds(accelerator, kernel), kernel, load_attention_law(accelerator)))
    assert np.median(error) < median
    assert np.quantile(error, 0.9) < p90


def test_selective_recomputation_of_a_22b_layer_takes_the_forward_of_its_attention_core() -> None:
    # arXiv 2205.05198, table 4: the backward grows from 11.9 to 13.2 ms; one of 8 tensor ranks, 4 sequences, A100
    core = AttentionShape(batch=4, num_heads=8, num_kv_heads=8, head_dim=96, query_len=2048, key_len=2048)
    forward_s, _ = attention_s(core, AttentionKernel.FUSED_SOFTMAX, load_attention_law("a100"))
    # 12 %: nothing was fitted to it; 4 % from the table's digits, and training clocks are below a benchmark's
    assert forward_s == pytest.approx(1.3e-3, rel=0.12)


def test_unfused_attention_at_8k_costs_what_training_runs_lost_to_it() -> None:
    # steps of arXiv 2311.05610 that differ in nothing but the kernel: all else in them cancels
    ratios = [
        (step_s["torch"] - step_s["flash_attention2"])
        / (_core_s(sizes, AttentionKernel.MATH) - _core_s(sizes, AttentionKernel.FLASH))
        for sizes, step_s in _runs(seq_len="8192")
        if {"torch", "flash_attention2"} <= step_s.keys()
    ]
    assert len(ratios) >= 8
    # nothing was fitted to them: 5 %, as of the kernel's own figures; 15 % for one pair, each a single run
    assert np.median(ratios) == pytest.approx(1.0, rel=0.05)
    assert ratios == pytest.approx([1.0] * len(ratios), rel=0.15)


def _runs(seq_len: str) -> Iterator[tuple[dict[str, float], dict[str, float]]]:
    """The sizes of each timed layout, and its step times by kernel."""
    sizes = ("layers", "hidden", "heads", "seq_len", "num_gpus", "global_batch", "micro_batch", "tp", "pp")
    step_s: dict[tuple[str, ...], dict[str, float]] = {}
    for row in rows("aleph_alpha_layouts_sweep"):
        if not row["step_time_s"] or row["seq_len"] != seq_len:
            continue
        layout = (*(row[size] for size in sizes), str(int(row["act_ckpt"] == "every_layer")))
        step_s.setdefault(layout, {})[row["attention"]] = float(row["step_time_s"])
    for layout, by_kernel in step_s.items():
        yield dict(zip((*sizes, "recomputes"), map(float, layout), strict=True)), by_kernel


def _core_s(sizes: dict[str, float], kernel: AttentionKernel) -> float:
    """Attention cores of a step on one pipeline rank, with 1F1B's bubble."""
    heads, stages = sizes["heads"] / sizes["tp"], sizes["pp"]
    shape = AttentionShape(
        batch=sizes["micro_batch"],
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=sizes["hidden"] / sizes["heads"],
        query_len=sizes["seq_len"],
        key_len=sizes["seq_len"],
    )
    forward_s, backward_s = attention_s(shape, kernel, load_attention_law("a100"))
    num_replicas = sizes["num_gpus"] / sizes["tp"] / stages
    num_micro_batches = sizes["global_batch"] / (num_replicas * sizes["micro_batch"])
    micro_batch_s = float(forward_s * (1 + sizes["recomputes"]) + backward_s) * sizes["layers"] / stages
    return micro_batch_s * (num_micro_batches + stages - 1)
