"""The speed of predictions: layouts per second on one core, extra memory, and the ratio to a public predictor.

``python -m research.predict_speed`` predicts a dense 70B model on 1,024 H100s; ``make research`` installs the other
predictor first. Rates are per second of processor time, of all threads together, and the best of five runs.

The other predictor, llm-analysis 0.2.2, answers one layout per call: a step time, which is FLOP at one assumed
efficiency, and memory. Its step has no bubble or schedule, no communication (that of tensor groups only in the latency
of a forward pass, reported separately), no optimizer, and no product whose speed depends on its shape.
"""

from __future__ import annotations

import logging
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.choices import AttentionKernel, PipelineSchedule, Precision, ShardLevel
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.space import SearchSpace, default_space
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict
from autotuner.costmodel.shared.table import columns_of
from autotuner.search.predicted_ranking import best_predicted
from autotuner.search.space.legal import legal_layouts

NUM_RUNS = 5
AT_LEAST_PER_S = 1_300_000
SPACE_LIMITS_S = {"default": 1.0, "widest": 3.0}
NUM_PEER_LAYOUTS = 500
NUM_UNDER_LINKS = 10_000
SLOW_LINK_LIMIT = 10

WIDE = SearchSpace(
    context_parallel_degree=None,
    pipeline_schedule=tuple(PipelineSchedule),
    shard_level=tuple(ShardLevel),
    attention_kernel=tuple(AttentionKernel),
    precision=(Precision.BF16, Precision.FP8),
)
"""Search space with every schedule, kernel, shard level, precision and context degree."""


def main() -> None:
    """Print how many layouts per second the cost model predicts, the memory that it needs, and a comparison.

    The comparison is the ratio to the speed of the public predictor llm-analysis, if it is installed.
    """
    job = Job(
        model=load_model("llama-3-70b"),
        cluster=load_cluster("h100:1024"),
        workload=Workload(seq_len=8192, global_batch_size=4096),
    )
    layouts = legal_layouts(job, WIDE)
    ours_per_s = _report_rate(layouts, job)
    for num_layouts in (250_000, 1_000_000):
        _report_memory(layouts.take(slice(0, num_layouts)), job)
    _report_space("default", job, default_space(job))
    _report_space("widest", job, WIDE)
    _report_slow_link(layouts, job)
    theirs_per_s = _peer_per_s(job)
    if theirs_per_s is not None:
        _say(f"ratio {ours_per_s / theirs_per_s:.0f}")


def _report_rate(layouts: LayoutColumns, job: Job) -> float:
    cpu_s, wall_s = _best_s(lambda: predict(layouts, job))
    per_s = len(layouts) / cpu_s
    _say(f"predict  {len(layouts)} layouts: {per_s:,.0f} per processor second, {len(layouts) / wall_s:,.0f} per second")
    _say(f"         {per_s / AT_LEAST_PER_S:.2f} of the {AT_LEAST_PER_S:,} that it should reach")
    return per_s


def _report_slow_link(layouts: LayoutColumns, job: Job) -> None:
    """Print how much longer predictions take with a slow link, whose effect on pipelines is computed hop by hop."""
    some = layouts.take(np.linspace(0, len(layouts) - 1, NUM_UNDER_LINKS).astype(int))
    links = (LinkHealth(ends=(2, 3), delay_s=0.06),)
    late = replace(job, cluster=replace(job.cluster, link_health=links))
    (without_s, _), (with_s, _) = (_best_s(partial(predict, some, one)) for one in (job, late))
    _say(
        f"links    {len(some)} layouts: {1e3 * without_s:.0f} ms where all are alike, {1e3 * with_s:.0f} ms where one "
        f"is late, {with_s / without_s:.1f} times as long, {with_s / without_s / SLOW_LINK_LIMIT:.2f} of the limit"
    )


def _report_memory(layouts: LayoutColumns, job: Job) -> None:
    tracemalloc.start()
    predictions = predict(layouts, job)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    result_bytes = sum(column.nbytes for column in columns_of(predictions))
    beyond_bytes = peak_bytes - result_bytes
    _say(
        f"memory   {len(layouts)} layouts: {result_bytes / 1e6:.0f} MB of result, {beyond_bytes / 1e6:.0f} MB beyond it"
    )


def _report_space(name: str, job: Job, space: SearchSpace) -> None:
    num_legal = best_predicted(job, space).num_legal
    _, wall_s = _best_s(lambda: best_predicted(job, space))
    took = f"enumerated, predicted and ranked in {wall_s:.3f} s, {wall_s / SPACE_LIMITS_S[name]:.2f} of the limit"
    _say(f"space    {name}: {num_legal} layouts {took}")


def _best_s(run: Callable[[], object]) -> tuple[float, float]:
    """Return the least processor seconds and the least wall seconds of some runs."""
    cpu_s, wall_s = zip(*(_once_s(run) for _ in range(NUM_RUNS)), strict=True)
    return min(cpu_s), min(wall_s)


def _once_s(run: Callable[[], object]) -> tuple[float, float]:
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    run()
    return time.process_time() - cpu_s, time.perf_counter() - wall_s


# ---------------------------------------------------------------- the peer
def _peer_per_s(job: Job) -> float | None:
    """Return the other predictor's layouts per processor second, on layouts of the default space that it supports."""
    try:
        ask = _peer(job)
    except ImportError as error:
        _say(f"no peer  ({error}): make research installs it")
        return None
    space = legal_layouts(job)
    layouts = [space.row(index) for index in np.linspace(0, len(space) - 1, NUM_PEER_LAYOUTS).astype(int)]
    cpu_s, _ = _best_s(lambda: [ask(layout) for layout in layouts])
    per_s = len(layouts) / cpu_s
    _say(f"peer     llm-analysis 0.2.2: {per_s:,.0f} per processor second; no bubbles, no data-parallel communication")
    return per_s


def _peer(job: Job) -> Callable[[Layout], dict[str, Any]]:
    """Return a function that calls the other predictor once, with its log switched off."""
    from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis  # noqa: PLC0415  # optional
    from llm_analysis.config import (  # noqa: PLC0415  # optional
        ModelConfig,
        ParallelismConfig,
        get_dtype_config_by_name,
        get_gpu_config_by_name,
    )
    from llm_analysis.logger import logger  # noqa: PLC0415  # optional

    logger.setLevel(logging.ERROR)
    model = ModelConfig(
        name=job.model.name,
        num_layers=job.model.num_layers,
        n_head=job.model.num_heads,
        hidden_dim=job.model.hidden_size,
        vocab_size=job.model.vocab_size,
        max_seq_len=job.workload.seq_len,
        num_key_value_heads=job.model.num_kv_heads,
        ffn_embed_dim=job.model.ffn_size,
        expansion_ratio=job.model.ffn_size / job.model.hidden_size,
    )
    gpu, dtype = get_gpu_config_by_name("h100-sxm-80gb"), get_dtype_config_by_name("w16a16e16")
    analysis = LLMAnalysis(model, gpu, dtype)

    def ask(layout: Layout) -> dict[str, Any]:
        parallelism = ParallelismConfig(
            tp_size=layout.tensor_parallel_degree,
            pp_size=layout.pipeline_parallel_degree,
            dp_size=layout.data_parallel_degree,
            sp_size=layout.tensor_parallel_degree if layout.sequence_parallel else 1,
        )
        analysis.update_parallelism_config(parallelism)
        answer: dict[str, Any] = analysis.training(
            batch_size_per_gpu=layout.micro_batch_size,
            global_batch_size=job.workload.global_batch_size,
            seq_len=job.workload.seq_len,
            activation_recomputation=ActivationRecomputation[layout.recompute.name],
            ds_zero=DSZeRO(int(layout.shard_level)),
            flash_attn=layout.attention_kernel != AttentionKernel.MATH,
            mlp_gated_linear_units=job.model.gated_mlp,
        )
        return answer

    return ask


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # a benchmark prints its result


if __name__ == "__main__":
    main()
