"""Examples of exported and imported layouts."""

from __future__ import annotations

from typing import Any

from api.examples.predictions import job_body
from api.schemas import FormatList, FormatRule, FormatView, ImportedLayout, LayoutExport
from autotuner.core.choices import OptimizerKernel, ShardLevel
from autotuner.core.layout import Layout
from autotuner.core.rules.rule import Reason
from autotuner.core.trial_spec import ExportFormat
from autotuner.export.target import Export, Imported, Note, NoteKind


def export_bodies() -> dict[str, Any]:
    """Bodies of ``POST /exports``."""
    job = job_body()
    layout = {"data_parallel_shard_degree": 2, "tensor_parallel_degree": 4, "shard_level": "optimizer"}
    sharded = {"data_parallel_shard_degree": 8, "shard_level": "parameters", "recompute": "full"}
    return {
        "Megatron-LM": job | {"layout": layout | {"sequence_parallel": True}, "format": "megatron-lm"},
        "torchtitan": job | {"layout": sharded, "format": "torchtitan"},
        "DeepSpeed": job | {"layout": sharded, "format": "deepspeed"},
    }


def import_bodies() -> dict[str, Any]:
    """Bodies of ``POST /imports``."""
    flags = "--tensor-model-parallel-size 4 --sequence-parallel --micro-batch-size 1 --global-batch-size 128 --bf16"
    file = "[parallelism]\ntensor_parallel_degree = 8\n\n[training]\nlocal_batch_size = 2\n"
    return {
        "flags of Megatron-LM": {"text": f"{flags} --use-distributed-optimizer", "num_ranks": 16},
        "a file of torchtitan": {"text": file, "format": "torchtitan", "num_ranks": 64},
    }


def layout_export() -> LayoutExport:
    """Flags of Megatron-LM with one thing that they cannot say."""
    layout = Layout(tensor_parallel_degree=8, sequence_parallel=True, optimizer_kernel=OptimizerKernel.FOREACH)
    arguments = ("--tensor-model-parallel-size", "8", "--sequence-parallel", "--micro-batch-size", "1", "--bf16")
    unsaid = Reason(
        rule="megatron-optimizer-kernel",
        field="optimizer_kernel",
        message="Megatron-LM has no flag for the optimizer's kernel: it runs fused",
        nearest="fused",
    )
    return LayoutExport.of(
        layout,
        Export(
            format=ExportFormat.MEGATRON_LM,
            version="core_v0.16.1",
            arguments=arguments,
            environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
            unsaid=(unsaid,),
            defaults=("--overlap-grad-reduce is off",),
            usage="append them to the command line of pretrain_gpt.py",
        ),
    )


def imported_layout() -> ImportedLayout:
    """Flags of Megatron-LM, read for 16 ranks."""
    layout = Layout(
        data_parallel_shard_degree=4,
        tensor_parallel_degree=4,
        sequence_parallel=True,
        shard_level=ShardLevel.OPTIMIZER,
        fp32_gradient_reduce=True,
    )
    reduce = Note(
        kind=NoteKind.ASSUMED,
        setting="--accumulate-allreduce-grads-in-fp32",
        detail="with --bf16 gradients are summed in fp32, unless --grad-reduce-in-bf16 is given",
    )
    return ImportedLayout.of(
        Imported(format=ExportFormat.MEGATRON_LM, layout=layout, num_ranks=16, global_batch_size=128, notes=(reduce,))
    )


def format_list() -> FormatList:
    """One format, with one of its rules."""
    rule = FormatRule(rule="megatron-optimizer-kernel", field="optimizer_kernel")
    view = FormatView(
        format=ExportFormat.MEGATRON_LM,
        version="core_v0.16.1",
        stack="megatron-core",
        is_read=True,
        rules=(rule,),
        elsewhere=(),
    )
    return FormatList(items=(view,))
