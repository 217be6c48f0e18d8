"""Compares the cost model with a published layout sweep: ``python -m bench.backtest_v1 sweep.csv``.

Each row of the table is a run: shapes (``layers``, ``hidden``, ``heads``, ``kv_heads``, ``ffn``, ``vocab``),
``seq_len``, ``num_gpus``, ``global_batch``, ``micro_batch``, ``tp``, ``pp``, ``dp``, ``seq_parallel``, ``act_ckpt``,
``attention``, and what came of it, ``step_time_s`` or ``oom`` = 1. Empty cells are read as flash attention, nothing
recomputed, no sequence parallelism; every run as ZeRO-1 and 1F1B. Written for the sweeps of arXiv 2311.05610 (A100) and
of nanotron's Ultra-Scale Playbook (H100). Runs below 5 % MFU are taken for faults of the network and left out.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from autotuner.catalog.load import load_cluster
from autotuner.costmodel.columns import Booleans, Floats, LayoutColumns
from autotuner.costmodel.predict import predict
from autotuner.domain.choice import AttentionKernel, Recompute, ShardLevel
from autotuner.domain.layout import Layout
from autotuner.domain.legality import Job
from autotuner.domain.model import TransformerSpec
from autotuner.domain.workload import Workload

Row = dict[str, str]

CLUSTERS = {"A100-80GB": "a100-80gb", "H100-80GB-SXM": "h100-sxm"}


def main(path: Path) -> None:
    """Print per sheet and for all: rank correlation and error of step times, accuracy of the memory verdict."""
    sheets: dict[str, list[Row]] = defaultdict(list)
    for row in csv.DictReader(path.open(encoding="utf-8")):
        if row["gpu"] in CLUSTERS and row["oom"] in {"0", "1"} and not _failed_otherwise(row):
            sheets[f"{row['model']} {row['seq_len']} x{row['num_gpus']}"].append(row)
    pooled: list[tuple[Floats, Floats, Booleans, Booleans]] = []
    for name, rows in sheets.items():
        pooled.append(_judge(rows))
        _report(name, *pooled[-1])
    _report("all", *(np.concatenate(parts) for parts in zip(*pooled, strict=True)))


def _failed_otherwise(row: Row) -> bool:
    return row["oom"] == "0" and not (row["step_time_s"] and float(row["mfu"]) > 0.05)


def _judge(rows: list[Row]) -> tuple[Floats, Floats, Booleans, Booleans]:
    """Measured and predicted step times, measured and predicted out-of-memory, of the rows of one sheet."""
    predictions = predict(LayoutColumns.from_layouts([_layout(row) for row in rows]), _job(rows[0]))
    measured = np.array([float(row["step_time_s"] or "nan") for row in rows])
    return measured, predictions.step_time.total_s, np.array([row["oom"] == "1" for row in rows]), ~predictions.fits


def _report(name: str, measured: Floats, predicted: Floats, oom: Booleans, predicted_oom: Booleans) -> None:
    timed = ~np.isnan(measured)
    ratio = predicted[timed] / measured[timed]
    balanced = (
        (np.mean(predicted_oom[oom]) + np.mean(~predicted_oom[~oom])) / 2 if oom.any() and not oom.all() else np.nan
    )
    print(  # noqa: T201  # a benchmark prints its result
        f"{name:22s} timed {timed.sum():4d} spearman {_spearman(measured[timed], predicted[timed]):.3f} "
        f"median |error| {np.median(np.abs(ratio - 1)):.3f} median predicted/measured {np.median(ratio):.3f} "
        f"rows {len(oom):4d} out-of-memory balanced accuracy {balanced:.3f}"
    )


def _spearman(left: Floats, right: Floats) -> float:
    left_ranks, right_ranks = (np.argsort(np.argsort(values)).astype(float) for values in (left, right))
    return float(np.corrcoef(left_ranks, right_ranks)[0, 1])


def _job(row: Row) -> Job:
    model = TransformerSpec(
        name=row["model"],
        num_layers=int(row["layers"]),
        hidden_size=int(row["hidden"]),
        num_heads=int(row["heads"]),
        num_kv_heads=int(row["kv_heads"]),
        head_dim=int(row["hidden"]) // int(row["heads"]),
        ffn_size=int(row["ffn"]),
        vocab_size=int(row["vocab"]),
    )
    workload = Workload(seq_len=int(row["seq_len"]), global_batch_size=int(row["global_batch"]))
    return Job(model=model, cluster=load_cluster(f"{CLUSTERS[row['gpu']]}:{row['num_gpus']}"), workload=workload)


def _layout(row: Row) -> Layout:
    data, tensor = int(row["dp"]), int(row["tp"])
    return Layout(
        data_parallel_shard_degree=data,
        tensor_parallel_degree=tensor,
        pipeline_parallel_degree=int(row["pp"]),
        micro_batch_size=int(row["micro_batch"]),
        shard_level=ShardLevel.OPTIMIZER if data > 1 else ShardLevel.NONE,
        sequence_parallel=row["seq_parallel"] == "1" and tensor > 1,
        recompute=Recompute.NONE if row["act_ckpt"] in {"", "disabled"} else Recompute.FULL,
        attention_kernel=AttentionKernel.MATH if row["attention"] in {"torch", "fused"} else AttentionKernel.FLASH,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
