"""Whatever a table holds, a row of it is read or refused with a reason."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from autotuner.backtests.cells import UnusableRow
from autotuner.backtests.measured_table import Run, read_row
from autotuner.core.rules.degrees import DEGREE_RULES
from autotuner.core.rules.legality import reasons

COUNTS = st.sampled_from(["", "1", "2", "3", "8", "61", "64", "126", "1024", "4096", "1e9", "0", "-1", "2.5", "many"])

WORDS = st.sampled_from(
    [
        *(
            "",
            "none",
            "full (3 layers)",
            "selective (mlp + core_attn)",
            "selective-9",
            "every 0 layers",
            "custom",
            "te",
        ),
        *("fa3", "flash (Transformer Engine)", "unfused", "fp8 (delayed scaling)", "mxfp8", "nvfp4", "fp32", "tf32"),
        *("FSDP128", "FSDP2-3", "HSDP", "zero_3", "distributed-optimizer", "ZB-2p", "1F1B-I", "dualpipe", "lora"),
        *("llama3-70b truncated to 0 layers", "Qwen3_30B_a3B", "DeepSeek-V2-Lite", "GPT 1T 9999L", "Megatron-LM"),
    ]
)

CELLS = st.one_of(COUNTS, WORDS, st.text(max_size=12))

COLUMNS = (
    *("source", "model", "params_b", "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "seq_len"),
    *("gpu", "num_gpus", "global_batch", "micro_batch", "tp", "pp", "vpp", "dp", "cp", "ep", "zero_or_fsdp"),
    *("seq_parallel", "act_ckpt", "attention", "precision", "schedule", "framework", "release", "task", "notes"),
    *("num_experts", "experts_per_token", "expert_ffn", "num_shared_experts", "num_dense_layers", "capacity_factor"),
    *("q_lora_rank", "kv_lora_rank", "rope_head_dim", "v_head_dim", "nvlink_domain", "gpus_per_node", "grad_accum"),
    *("step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "oom", "suspect", "cp_comm_type", "torch_compile"),
)

RUN = {
    "model": "Llama 3 8B",
    "gpu": "H100",
    "num_gpus": "64",
    "seq_len": "4096",
    "global_batch": "256",
    "micro_batch": "1",
    "tp": "2",
    "pp": "2",
    "step_time_s": "3",
}

CHANGES = st.dictionaries(st.sampled_from(COLUMNS), CELLS, max_size=5)


def read(row: dict[str, str]) -> Run | str:
    """The run, or why there is none."""
    try:
        return read_row(row)
    except UnusableRow as why:
        return why.reason


@given(CHANGES)
@example({"capacity_factor": "-1", "model": "Mixtral-8x7B"})
@example({"nvlink_domain": "7"})
@example({"num_gpus": "1e9"})
@example({"vpp": "1e9"})
@example({"model": "GPT-3 175B", "seq_len": "1e9"})
def test_a_row_is_a_legal_run_or_says_why_it_cannot_be_used(changes: dict[str, str]) -> None:
    run = read(RUN | changes)
    assert run  # a reason has words
    if isinstance(run, Run):
        assert run.step_time_s is None or run.step_time_s > 0
        ran_anyway = {"tensor-group-inside-node", "micro-batches-fill-pipeline"}
        assert {reason.rule for reason in reasons(run.layout, run.job, DEGREE_RULES)} <= ran_anyway


@given(st.dictionaries(st.sampled_from(COLUMNS), CELLS))
def test_a_row_of_anything_is_read_or_says_why_not(row: dict[str, str]) -> None:
    assert read(row)
