"""The examples of the OpenAPI document, made of real domain objects so that they cannot drift from the schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from api.calibration_examples import calibration_list
from api.cluster_examples import check_bodies, check_page, cluster_check, engine_list, link_list
from api.gate_examples import gate_answers, gate_bodies
from api.retune_examples import (
    adoption_bodies,
    retune_bodies,
    retune_detail,
    retune_list,
    retune_run,
    retune_run_page,
    retune_trend,
)
from api.schemas import (
    AcceleratorDetail,
    AcceleratorList,
    ClusterList,
    Current,
    FormatList,
    FormatRule,
    FormatView,
    Gain,
    Health,
    ImportedLayout,
    LayoutExplanation,
    LayoutExport,
    ModelList,
    ModelSize,
    PredictedLayout,
    PredictionTable,
    Progress,
    RankingPage,
    Readiness,
    StackList,
    StackProfileList,
    SweepDetail,
    SweepPage,
    SweepRules,
    SweepSummary,
    TrainerList,
    TrainerView,
    TrialCounts,
    TrialDetail,
    TrialPage,
    TrialView,
)
from api.webhook_examples import WEBHOOK_ANSWERS, WEBHOOK_BODIES
from autotuner.catalog.compared import Compared
from autotuner.catalog.load import accelerator_facts, load_accelerator, load_cluster, load_model, load_stack
from autotuner.catalog.stack_profiles import StackProfile
from autotuner.domain.jobs.cluster import Cluster
from autotuner.domain.jobs.defaults import default_trial_space
from autotuner.domain.jobs.job import Job
from autotuner.domain.jobs.model import TransformerSpec
from autotuner.domain.jobs.workload import Workload
from autotuner.domain.layouts.choice import OptimizerKernel, ShardLevel
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.rules.legality import Reason
from autotuner.domain.runs.engine_job import EngineJob, JobPhase
from autotuner.domain.runs.objective import Objective
from autotuner.domain.runs.prediction import Memory, Prediction, StepTime
from autotuner.domain.runs.sweep import Budget, StopReason, SweepRequest, SweepState
from autotuner.domain.runs.trainer import ExportFormat
from autotuner.domain.runs.trial import Breakdown, Measurement, PhaseTimes, StepReport, Trial, TrialState
from autotuner.domain.wire import to_dict
from autotuner.export.target import Export, Imported, Note, NoteKind
from autotuner.ports import Page
from autotuner.search import ranking
from autotuner.search.advice import current as comparison
from autotuner.search.explain.explanation import Change, Explanation, MemoryPart, Refusal, TimePart
from autotuner.search.explain.pairwise import Insight
from autotuner.search.standings import Standing

__all__ = ["ANSWERS", "BODIES", "explanation", "ranking_page", "sweep_detail", "trial_detail"]

_SWEEP_ID = "sw-k3v7q2mxn5"
_CREATED_AT = 1_760_000_000.0
_WORKLOAD = Workload(seq_len=8192, global_batch_size=64)


# ---------------------------------------------------------------- request bodies
def _sweep_bodies() -> dict[str, Any]:
    """Bodies of ``POST /sweeps``."""
    workload = to_dict(_WORKLOAD)
    return {
        "by name": {"model": "llama-3-8b", "cluster": "h100:8", "workload": workload},
        "this machine": {
            "name": "nightly",
            "model": _small_model(),
            "cluster": "local",
            "workload": {"seq_len": 128, "global_batch_size": 8},
            "space": {"micro_batch_size": [1, 2], "recompute": ["none", "full"]},
            "budget": {"num_trials": 8, "wall_clock_s": 600.0, "min_gain": 0.02},
            "trial": {"measured_steps": 5, "timeout_s": 60.0},
            "seed": 1,
        },
    }


def _prediction_bodies() -> dict[str, Any]:
    """Bodies of ``POST /predictions``."""
    job = {"model": "llama-3-8b", "cluster": "h100:8", "workload": to_dict(_WORKLOAD)}
    layout = {"data_parallel_shard_degree": 8, "shard_level": "parameters"}
    return {
        "best of the space": job | {"limit": 5},
        "as Megatron-LM would run it": job | {"stack": "megatron"},
        "one layout": job | {"layout": {"tensor_parallel_degree": 8, "recompute": "full"}},
        "beside what runs today": job | {"limit": 1, "current": layout},
        "the best that your trainer can be told, beside what runs today": job
        | {"stack": "megatron-core", "format": "megatron-lm", "current": layout, "limit": 3},
        "where a run was measured": job | {"measured": [{"layout": layout, "step_time_s": 8.9}]},
    }


def _explanation_bodies() -> dict[str, Any]:
    """Bodies of ``POST /explanations``."""
    job = {"model": "llama-3-8b", "cluster": "h100:8", "workload": to_dict(_WORKLOAD)}
    return {"one layout": job | {"layout": {"tensor_parallel_degree": 8, "sequence_parallel": True}}}


def _export_bodies() -> dict[str, Any]:
    """Bodies of ``POST /exports``."""
    job = {"model": "llama-3-8b", "cluster": "h100:8", "workload": to_dict(_WORKLOAD)}
    layout = {"data_parallel_shard_degree": 2, "tensor_parallel_degree": 4, "shard_level": "optimizer"}
    sharded = {"data_parallel_shard_degree": 8, "shard_level": "parameters", "recompute": "full"}
    return {
        "Megatron-LM": job | {"layout": layout | {"sequence_parallel": True}, "format": "megatron-lm"},
        "torchtitan": job | {"layout": sharded, "format": "torchtitan"},
        "DeepSpeed": job | {"layout": sharded, "format": "deepspeed"},
    }


def _import_bodies() -> dict[str, Any]:
    """Bodies of ``POST /imports``."""
    flags = "--tensor-model-parallel-size 4 --sequence-parallel --micro-batch-size 1 --global-batch-size 128 --bf16"
    file = "[parallelism]\ntensor_parallel_degree = 8\n\n[training]\nlocal_batch_size = 2\n"
    return {
        "flags of Megatron-LM": {"text": f"{flags} --use-distributed-optimizer", "num_ranks": 16},
        "a file of torchtitan": {"text": file, "format": "torchtitan", "num_ranks": 64},
    }


def _model_bodies() -> dict[str, Any]:
    """Bodies of ``PUT /models/{name}``."""
    config = {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
    }
    changed = {"base": "llama-3-8b", "name": "my-llama", "num_layers": 16}
    return {"our fields": _small_model(), "of the catalog, changed": changed, "Hugging Face config.json": config}


def _cluster_bodies() -> dict[str, Any]:
    """Bodies of ``PUT /clusters/{name}``."""
    named = {"name": "mine", "accelerator": "h100", "num_nodes": 4, "inter_node_link": "ndr200"}
    changed = named | {"accelerator": {"base": "h100", "memory_bytes": 64_000_000_000}, "oversubscription": 2.0}
    return {"by names": named, "by names, changed": changed, "whole": to_dict(_cluster())}


def _trainer_list() -> TrainerList:
    trainer = TrainerView(
        name="finetune",
        format=ExportFormat.DEEPSPEED,
        version="0.19.8",
        stack="torch",
        options=("data_parallel_shard_degree", "shard_level", "micro_batch_size", "recompute"),
        fixed={"attention_kernel": "math"},
        values={"recompute": ("none", "full")},
    )
    return TrainerList(items=(trainer,))


def _small_model() -> dict[str, Any]:
    sizes = {"num_layers": 8, "hidden_size": 256, "num_heads": 8, "num_kv_heads": 4, "head_dim": 32, "ffn_size": 704}
    return {"name": "my-llama", **sizes, "vocab_size": 4096}


# ---------------------------------------------------------------- answers
def _model() -> TransformerSpec:
    """A model of the catalog."""
    return load_model("llama-3-8b")


def _cluster() -> Cluster:
    """A cluster of catalog accelerators."""
    return load_cluster("h100:8")


def _model_list() -> ModelList:
    """A list of models."""
    return ModelList(items=(_model(),))


def _cluster_list() -> ClusterList:
    """A list of clusters."""
    return ClusterList(items=(_cluster(),))


def _accelerator_list() -> AcceleratorList:
    """A list of accelerators."""
    return AcceleratorList(items=(load_accelerator("h100-sxm"),))


def _accelerator_detail() -> AcceleratorDetail:
    """An accelerator with the origin of a value."""
    facts = accelerator_facts("h100-sxm")
    name = "memory_bytes"
    return AcceleratorDetail(accelerator=load_accelerator("h100-sxm"), facts={name: facts[name]})


def _prediction_table() -> PredictionTable:
    """A table with one prediction."""
    row = PredictedLayout.of(1, _layout(), _prediction())
    job = Job(model=_model(), cluster=_cluster(), workload=Workload(seq_len=8192, global_batch_size=1024))
    caveats = ("dense models on nemo with h100-sxm were compared with 63 measured runs",)
    table = PredictionTable.of(job, (row,), caveats=caveats, num_legal=1234, num_fitting=321)
    return replace(table, current=Current.of(_current()))


def _current() -> comparison.Current:
    """What runs today, slower than the one row."""
    layout = Layout(tensor_parallel_degree=8)
    today = ranking.PredictedLayout(layout=layout, prediction=replace(_prediction(), tokens_per_s=100e3))
    gain = Gain(gain=0.12, change="sequence parallel off → on")
    return comparison.Current(layout=layout, predicted=today, best=gain)


def _stack_list() -> StackList:
    """A list of training software."""
    return StackList(items=(load_stack("torch"),))


def _stack_profile_list() -> StackProfileList:
    """Training software with the runs that it was fitted to."""
    runs = Compared(stack="nemo", device="h100-sxm", model="dense models", runs=126, tables=("dgxc_benchmarking",))
    profile = StackProfile(
        name="nemo",
        framework="NVIDIA NeMo",
        versions="24.11 to 25.05",
        date="2025-05",
        left_out_error=0.05,
        compared=(runs,),
    )
    return StackProfileList(items=(profile,))


def explanation() -> LayoutExplanation:
    """A layout with its longest part, its largest part, and a change of each kind."""
    prediction, limit_bytes = _prediction(), 80e9
    time = TimePart(part="matrix_s", seconds=3.0, share=0.645, limit="the rate at which h100-sxm multiplies matrices")
    memory = MemoryPart(part="activations_bytes", num_bytes=18e9, share=0.444)
    micro_batch = Change(
        change="micro-batch 1 → 2",
        layout=Layout(tensor_parallel_degree=8, sequence_parallel=True, micro_batch_size=2),
        prediction=prediction,
        saved_share=0.02,
        excess_bytes=0.0,
        sentence="micro-batch 1 → 2 removes 2 % tensor communication: step 4.65 s → 4.56 s ± 12 %; fits, 98 % sure",
    )
    rule = Reason(
        rule="kv-heads-per-tensor-rank",
        field="tensor_parallel_degree",
        message="8 kv heads do not split over 16 tensor ranks",
        nearest=8,
    )
    return LayoutExplanation.of(
        Explanation(
            layout=_layout(),
            prediction=prediction,
            time=(time,),
            memory=(memory,),
            limit_bytes=limit_bytes,
            margin_bytes=limit_bytes - prediction.memory.total_bytes,
            helpful=(micro_batch,),
            too_large=(),
            illegal=(Refusal(change="tensor 8 → 16, replicate 2 → 1", reason=rule),),
            caveats=("dense models on nemo with h100-sxm were compared with 63 measured runs",),
        ),
        _model(),
    )


def _layout_export() -> LayoutExport:
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


def _format_list() -> FormatList:
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


def _imported_layout() -> ImportedLayout:
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


def _sweep_rules() -> SweepRules:
    """One statement, as six sheets of arXiv 2311.05610 support it."""
    recompute = Insight(
        subject="recompute",
        before="full",
        after="none",
        num_pairs=34,
        num_faster=34,
        median_gain=0.308,
        least_gain=0.053,
        greatest_gain=0.399,
        statement="recompute full → none: +30.8 % throughput in the median of 34 pairs (+5.3 % to +39.9 %), "
        "faster in 34 of them",
    )
    return SweepRules(num_measured=267, items=(recompute,))


def trial_detail() -> TrialDetail:
    """A complete trial with one step."""
    return TrialDetail.of(_trial())


def _trial_page() -> TrialPage:
    """A page with one trial."""
    return TrialPage.of([_trial()], 1, Page())


def ranking_page() -> RankingPage:
    """A page with the best trial."""
    return RankingPage.of([_trial()], 1, Page(), {_trial().id: Standing(probability_best=1.0, tied_with_best=True)})


def _event_stream() -> str:
    """One event as it travels."""
    return (
        'event: trial.finished\nid: 17\ndata: {"at": 1760000042.5, "number": 3, "state": "complete", "mfu": 0.41}\n\n'
    )


def _sweep_page() -> SweepPage:
    """A page with one sweep."""
    return SweepPage(items=(SweepSummary(**_sweep()),), total=1, limit=50, offset=0)


def sweep_detail() -> SweepDetail:
    """A finished sweep."""
    job = Job(model=_model(), cluster=_cluster(), workload=_WORKLOAD)
    request = SweepRequest(job=job, space=default_trial_space(job), budget=Budget(num_trials=1), name="nightly")
    size = ModelSize.of(job.model)
    return SweepDetail(**_sweep(), model_size=size, caveats=(), request=request, best=TrialView.of(_trial()))


def _sweep() -> dict[str, Any]:
    return {
        "id": _SWEEP_ID,
        "name": "nightly",
        "state": SweepState.COMPLETE,
        "model": "llama-3-8b",
        "cluster": "h100:8",
        "created_at": _CREATED_AT,
        "started_at": _CREATED_AT + 1,
        "finished_at": _CREATED_AT + 61,
        "cancel_requested": False,
        "stop_reason": StopReason.TRIAL_BUDGET,
        "stop_detail": "1 of 1 trials ran",
        "budget": Budget(num_trials=1),
        "progress": Progress(fraction=1.0, num_trials=1, elapsed_s=60.0, accelerator_hours=0.12),
        "trials": TrialCounts(complete=1),
        "objective": Objective(),
        "best_value": 0.43,
        "best_measured_mfu": 0.43,
        "trial_cluster": None,
        "best_estimated_mfu": None,
        "engine": "local",
        "best_simulated_mfu": None,
    }


def _layout() -> Layout:
    return Layout(tensor_parallel_degree=8, sequence_parallel=True)


def _prediction() -> Prediction:
    step_time = StepTime(
        matrix_s=3.0,
        attention_s=0.5,
        pointwise_s=0.5,
        host_s=0.0,
        recompute_s=0.0,
        tensor_communication_s=0.6,
        context_communication_s=0.0,
        expert_communication_s=0.0,
        pipeline_communication_s=0.0,
        data_communication_s=0.0,
        bubble_s=0.0,
        optimizer_s=0.05,
    )
    memory = Memory(
        parameters_bytes=2.0e9,
        gradients_bytes=4.0e9,
        optimizer_bytes=12.0e9,
        activations_bytes=18.0e9,
        logits_bytes=1.0e9,
        buffers_bytes=0.5e9,
        allowance_bytes=3.0e9,
        worst_stage=0,
    )
    return Prediction(
        step_time=step_time,
        memory=memory,
        tokens_per_s=112e3,
        mfu=0.47,
        hfu=0.47,
        fits=True,
        fit_probability=0.98,
        relative_error=0.12,
        validated=True,
    )


def _breakdown() -> Breakdown:
    return Breakdown(
        rank=3,
        forward_s=1.4,
        backward_s=2.9,
        all_reduce_s=0.01,
        all_gather_s=0.3,
        reduce_scatter_s=0.3,
        all_to_all_s=0.0,
        send_receive_s=0.0,
        pipeline_idle_s=0.0,
        optimizer_s=0.1,
        other_s=0.05,
    )


def _trial() -> Trial:
    step = StepReport(step=2, is_warmup=False, step_time_s=5.0, loss=8.1, tokens_per_s=104e3, mfu=0.43)
    measurement = Measurement(
        step_time_s=5.0,
        step_time_spread_s=0.04,
        step_time_interval_s=0.03,
        num_steps=7,
        num_warmup_steps=4,
        tokens_per_s=104e3,
        model_flop_per_s=3.4e15,
        mfu=0.43,
        hfu=0.43,
        peak_flop_per_s=7.9e15,
        peak_source="data sheet",
        peak_bytes=(39_000_000_000,) * 8,
        reserved_bytes=(42_000_000_000,) * 8,
        phases=PhaseTimes(forward_backward_s=4.9, gradient_sync_s=0.0, optimizer_s=0.1),
        losses=(11.8, 9.6, 8.1),
        foreign_cpu_share=0.01,
        environment={"torch": "2.13.0", "nccl": "2.27.5", "host": "5891b5b522d5", "NCCL_ALGO": "Ring"},
        breakdown=_breakdown(),
        power_w=612.0,
        noise_floor=0.004,
    )
    return Trial(
        id=f"{_SWEEP_ID}-0000",
        sweep_id=_SWEEP_ID,
        number=0,
        state=TrialState.COMPLETE,
        layout=_layout(),
        prediction=_prediction(),
        attempts=1,
        started_at=_CREATED_AT + 2,
        finished_at=_CREATED_AT + 56,
        steps=(step,),
        measurement=measurement,
        jobs=(_job(),),
    )


def _job() -> EngineJob:
    return EngineJob(
        engine="slurm",
        name=f"t-{_SWEEP_ID}-0000-0-0",
        handle="4711",
        phase=JobPhase.ENDED,
        submitted_at=_CREATED_AT + 2,
        started_at=_CREATED_AT + 12,
        ended_at=_CREATED_AT + 55,
    )


# ---------------------------------------------------------------- by operation
BODIES: Mapping[str, Callable[[], dict[str, Any]]] = {
    "create_sweep": _sweep_bodies,
    "predict": _prediction_bodies,
    "explain_layout": _explanation_bodies,
    "export_layout": _export_bodies,
    "import_configuration": _import_bodies,
    "save_model": _model_bodies,
    "save_cluster": _cluster_bodies,
    "create_check": check_bodies,
    **WEBHOOK_BODIES,
    "create_gate": gate_bodies,
    "create_retune": retune_bodies,
    "adopt_layout": adoption_bodies,
}
"""Bodies that the operation takes, by what they show."""

ANSWERS: Mapping[str, Callable[[], object]] = {
    "create_sweep": sweep_detail,
    "list_sweeps": _sweep_page,
    "read_sweep": sweep_detail,
    "cancel_sweep": sweep_detail,
    "list_trials": _trial_page,
    "rank_sweep": ranking_page,
    "read_trial": trial_detail,
    "rank_all": ranking_page,
    "stream_events": _event_stream,
    "predict": _prediction_table,
    "explain_layout": explanation,
    "explain_trial": explanation,
    "read_rules": _sweep_rules,
    "list_formats": _format_list,
    "export_layout": _layout_export,
    "export_trial": _layout_export,
    "import_configuration": _imported_layout,
    "list_models": _model_list,
    "read_model": _model,
    "save_model": _model,
    "list_clusters": _cluster_list,
    "read_cluster": _cluster,
    "save_cluster": _cluster,
    "remove_cluster": _cluster,
    **WEBHOOK_ANSWERS,
    "list_engines": engine_list,
    "create_check": cluster_check,
    "list_checks": check_page,
    "read_check": cluster_check,
    "cancel_check": cluster_check,
    "list_links": link_list,
    **gate_answers(),
    "create_retune": retune_detail,
    "list_retunes": retune_list,
    "read_retune": retune_detail,
    "remove_retune": retune_detail,
    "pause_retune": retune_detail,
    "resume_retune": retune_detail,
    "adopt_layout": retune_detail,
    "run_retune": retune_run,
    "list_retune_runs": retune_run_page,
    "read_retune_run": retune_run,
    "read_retune_trend": retune_trend,
    "list_accelerators": _accelerator_list,
    "read_accelerator": _accelerator_detail,
    "list_catalog_models": _model_list,
    "list_stacks": _stack_list,
    "list_stack_profiles": _stack_profile_list,
    "list_trainers": _trainer_list,
    "list_calibrations": calibration_list,
    "health": Health,
    "ready": lambda: Readiness(schema_revision="0002"),
}
"""What a success of the operation answers."""
