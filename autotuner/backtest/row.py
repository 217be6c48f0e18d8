"""One row of a table of measured runs: what was run, and how long a step took."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.backtest.calibrations import calibration_of
from autotuner.backtest.cells import Row, UnusableRow, count, is_true, positive, text
from autotuner.backtest.clusters import cluster_of
from autotuner.backtest.layouts import global_batch_size, layout_of, stack_of
from autotuner.backtest.shapes import model_of, with_capacity
from autotuner.backtest.sources import Source, source_of
from autotuner.core.choices import Recompute
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import RULES, reasons
from autotuner.core.workload import Workload

REQUIRED_COLUMNS = ("model", "seq_len", "gpu", "num_gpus")

_BROKEN_BY_MEASURED_RUNS = ("tensor-group-inside-node", "micro-batches-fill-pipeline")
"""Rules of what is worth proposing: Megatron and nanotron ran tensor groups of 16 on nodes of 8, and 1F1B with fewer
micro-batches than ranks (the tables of vTrain, of the Ultra-Scale Playbook and of arXiv 2401.10241 have such rows)."""

_RULES = tuple(rule for rule in RULES if rule.name not in _BROKEN_BY_MEASURED_RUNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A row that can be judged.

    Attributes:
        step_time_s: None if the run ran out of memory.
    """

    job: Job
    layout: Layout
    step_time_s: float | None


def read_row(row: Row) -> Run:
    """The run that the row describes.

    Raises:
        UnusableRow: Something is missing, contradicts itself, or cannot be expressed as a layout; the layout is not
            legal; or the run was of another kind, or ended otherwise than with a step time or out of memory.
    """
    _refuse_other_runs(row)
    source = source_of(row)
    try:
        cluster = cluster_of(row, source)
        model = with_capacity(model_of(row, source.vocab), row, source.capacity_factor)
        layout = layout_of(row, source, cluster, model)
        workload = Workload(seq_len=count(row, "seq_len"), global_batch_size=global_batch_size(row, layout))
        job = Job(
            model=model,
            cluster=cluster,
            workload=workload,
            stack=stack_of(row, source, cluster, model),
            calibration=calibration_of(row, cluster.accelerator.name),
        )
    except InvalidInput as error:
        raise UnusableRow(f"{error.field} {error.rule}", str(error)) from error
    except NotFound as error:
        raise UnusableRow(str(error)) from error
    for broken in reasons(layout, job, _RULES):
        raise UnusableRow(f"no legal layout, by the rule {broken.rule}", broken.message)
    return Run(job=job, layout=layout, step_time_s=_step_time_s(row, source, job, layout))


def _refuse_other_runs(row: Row) -> None:
    """What the row measured is no step of training, or not to be trusted."""
    if "lora" in text(row, "task").lower():
        raise UnusableRow("fine-tuning by LoRA: most weights have no gradients, which no prediction knows")
    if text(row, "suspect"):
        raise UnusableRow("the table itself suspects the time", text(row, "suspect"))
    if is_true(text(row, "oom")):
        return
    if text(row, "status").lower() not in ("", "success", "ok", "completed"):
        raise UnusableRow(f"the run ended as {text(row, 'status')}")
    if text(row, "notes").startswith("run failed"):
        raise UnusableRow(text(row, "notes"))


# ---------------------------------------------------------------- step time
def _step_time_s(row: Row, source: Source, job: Job, layout: Layout) -> float | None:
    """Seconds; None if the run ran out of memory."""
    if is_true(text(row, "oom")):
        return None
    tokens, ranks = job.workload.tokens_per_step, job.cluster.world_size
    if text(row, "step_time_s"):
        return positive(row, "step_time_s")
    if text(row, "tokens_per_s_per_gpu"):
        return tokens / (positive(row, "tokens_per_s_per_gpu") * ranks)
    if text(row, "tokens_per_s"):
        return tokens / positive(row, "tokens_per_s")
    if text(row, "samples_per_gpu_per_s"):
        return job.workload.global_batch_size / (positive(row, "samples_per_gpu_per_s") * ranks)
    if text(row, "tflops_per_gpu") and source.tflops:
        flop = tokens * _flop_per_token(source, job, layout)
        return flop / (positive(row, "tflops_per_gpu") * 1e12 * ranks)
    raise UnusableRow("no step time, no tokens per second")


def _flop_per_token(source: Source, job: Job, layout: Layout) -> float:
    """FLOP behind a stated TFLOP/s, counted as the source does."""
    model, seq_len = job.model, job.workload.seq_len
    flop = model.model_flop_per_token(seq_len)
    if source.tflops == "causal":
        return flop - 1.5 * model.attention_flop_per_token(seq_len)
    if source.tflops == "hardware" and layout.recompute == Recompute.FULL:
        return flop + 2 * model.num_active_layer_matrix_parameters + model.attention_flop_per_token(seq_len)
    return flop
