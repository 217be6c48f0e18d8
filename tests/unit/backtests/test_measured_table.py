from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from autotuner.backtests.cells import UnusableRow
from autotuner.backtests.measured_table import REQUIRED_COLUMNS, Table, read_row, read_table
from autotuner.core.choices import AttentionKernel, PipelineSchedule, Precision, Recompute, ShardLevel
from autotuner.core.errors import InvalidInput
from tests.unit.backtests.cells import SHAPES, row

ALEPH_ALPHA = "arXiv:2311.05610 repo data/llama_13B.xlsx"
MEGATRON = "github NVIDIA/Megatron-LM images/cases_april2021.png"


# ---------------------------------------------------------------- layouts
def test_cells_of_a_row_win_over_its_source_and_blank_ones_are_what_software_does_today() -> None:
    layout = read_row(row()).layout
    assert (layout.tensor_parallel_degree, layout.pipeline_parallel_degree, layout.micro_batch_size) == (2, 2, 2)
    assert (layout.data_parallel_shard_degree, layout.shard_level) == (2, ShardLevel.OPTIMIZER)
    assert (layout.recompute, layout.precision, layout.sequence_parallel) == (Recompute.NONE, Precision.BF16, True)
    assert (layout.attention_kernel, layout.fused_norm) == (AttentionKernel.FLASH, True)
    assert layout.pipeline_schedule == PipelineSchedule.ONE_F_ONE_B
    cells = {"zero_or_fsdp": "zero0", "attention": "torch", "seq_parallel": "0", "act_ckpt": "full"}
    layout = read_row(row(source="github NVIDIA/dgxc-benchmarking llama3.1", **cells)).layout
    assert (layout.shard_level, layout.attention_kernel) == (ShardLevel.NONE, AttentionKernel.MATH)
    assert (layout.sequence_parallel, layout.recompute) == (False, Recompute.FULL)


@pytest.mark.parametrize(
    ("source", "field", "value"),
    [
        (ALEPH_ALPHA, "shard_level", ShardLevel.OPTIMIZER),
        (ALEPH_ALPHA, "fused_norm", False),
        ("HF ultrascale-playbook assets", "sequence_parallel", True),
        ("github VIA-Research/vTrain data", "attention_kernel", AttentionKernel.FUSED_SOFTMAX),
        (MEGATRON, "attention_kernel", AttentionKernel.FUSED_SOFTMAX),
        ("arXiv:2401.10241 (ZBPP)", "attention_kernel", AttentionKernel.FUSED_SOFTMAX),
        ("github NVIDIA/dgxc-benchmarking llama3.1", "attention_kernel", AttentionKernel.CUDNN),
        ("github NVIDIA/dgxc-benchmarking maxtext/README", "recompute", Recompute.SELECTIVE),
        ("github NVIDIA/dgxc-benchmarking paxml/README", "recompute", Recompute.FULL),
        ("github pytorch/torchtitan benchmarks", "shard_level", ShardLevel.PARAMETERS),
        ("github NVIDIA-NeMo/Megatron-Bridge docs", "shard_level", ShardLevel.OPTIMIZER),
        ("github NVIDIA/dgxc-benchmarking llama3.1", "shard_level", ShardLevel.OPTIMIZER),
        ("github NVIDIA/dgxc-benchmarking llama3.1", "sequence_parallel", True),
    ],
)
def test_blank_cells_of_a_known_source_mean_what_it_ran(source: str, field: str, value: Any) -> None:
    assert getattr(read_row(row(source=source)).layout, field) == value


def test_kernels_are_those_of_their_time_their_sheet_or_the_software() -> None:
    kernels = ("flash_attention2", "flash_attention2 + RMS kernel", "flash_attentionv1.0.8")
    layouts = [read_row(row(source=ALEPH_ALPHA, attention=kernel)).layout for kernel in kernels]
    assert [layout.fused_norm for layout in layouts] == [False, True, False]
    assert [layout.attention_kernel.label for layout in layouts] == ["flash", "flash", "flash_1"]
    old = read_row(row(source="github mosaicml/llm-foundry scripts", attention="flash")).layout
    assert old.attention_kernel == AttentionKernel.FLASH_1
    assert read_row(row(attention="flash")).layout.attention_kernel == AttentionKernel.FLASH
    named, blank = (read_row(row(attention=word, framework="Megatron-LM")).layout for word in ("lightning", ""))
    assert named == blank


def test_data_parallel_ranks_shard_among_several_whole_or_in_nodes_beside_context_ranks() -> None:
    plain, sharded = (read_row(row(zero_or_fsdp=text)).layout for text in ("zero0", "zero2"))
    assert (plain.data_parallel_replicate_degree, plain.data_parallel_shard_degree) == (2, 1)
    assert (sharded.data_parallel_replicate_degree, sharded.data_parallel_shard_degree) == (1, 2)
    layout = read_row(row(zero_or_fsdp="fsdp", tp="8", pp="1")).layout
    assert (layout.shard_level, layout.reshard_after_forward) == (ShardLevel.NONE, False)
    layout = read_row(row(zero_or_fsdp="HSDP", num_gpus="32", pp="1")).layout
    assert (layout.data_parallel_replicate_degree, layout.data_parallel_shard_degree) == (4, 4)
    for dp in ("1", "2", ""):
        layout = read_row(row(cp="2", dp=dp)).layout
        assert (layout.context_parallel_degree, layout.data_parallel_degree) == (2, 1)


def test_stages_shards_and_sequences_follow_from_the_degrees() -> None:
    texts = ("zero1", "zero2", "zero3", "FSDP-FULL_SHARD")
    layouts = [read_row(row(zero_or_fsdp=text, pp="1")).layout for text in texts]
    assert [layout.reshard_after_forward for layout in layouts] == [False, False, True, True]
    assert not read_row(row(zero_or_fsdp="FSDP2", pp="2")).layout.reshard_after_forward
    layout = read_row(row(pp="1", vpp="4", schedule="interleaved")).layout
    assert (layout.virtual_stages_per_rank, layout.pipeline_schedule) == (1, PipelineSchedule.ONE_F_ONE_B)
    assert [read_row(row(schedule="zbv", vpp=v)).layout.virtual_stages_per_rank for v in ("", "2")] == [2, 2]
    assert read_row(row(seq_len="8k")).job.workload.seq_len == 8192
    assert not read_row(row(tp="1", seq_parallel="1")).layout.sequence_parallel
    assert read_row(row(tp="2", seq_parallel="1")).layout.sequence_parallel


@pytest.mark.parametrize(
    ("layers", "pp", "vpp", "ends"),
    [
        ("126", "8", "8", (1, 1)),  # Llama 3.1 405B: the embedding and the loss count as layers
        ("126", "16", "8", (1, 1)),  # then the ends hold no layer
        ("61", "8", "4", (1, 2)),  # DeepSeek-V3: as the last can give away no more than it has
        ("61", "4", "4", (0, 3)),
        ("94", "8", "4", (1, 1)),
        ("22", "8", "", (1, 1)),
        ("60", "8", "", (0, 0)),  # the odd ones lie on the earliest stages
        ("64", "8", "4", (0, 0)),
    ],
)
def test_ends_are_smaller_where_layers_do_not_divide(layers: str, pp: str, vpp: str, ends: tuple[int, int]) -> None:
    cells = {"layers": layers, "pp": pp, "vpp": vpp, "num_gpus": str(2 * int(pp)), "micro_batch": "1"}
    layout = read_row(row(**cells)).layout
    assert (layout.first_stage_less_layers, layout.last_stage_less_layers) == ends


# ---------------------------------------------------------------- clusters
@pytest.mark.parametrize(
    ("num_gpus", "gpus_per_node", "nodes", "per_node"),
    [("4", "", 1, 4), ("8", "", 1, 8), ("64", "", 8, 8), ("12", "", 3, 4), ("2520", "", 315, 8), ("64", "4", 16, 4)],
)
def test_accelerators_lie_on_nodes_of_8_or_of_the_largest_part_that_divides_them(
    num_gpus: str, gpus_per_node: str, nodes: int, per_node: int
) -> None:
    cells = {"num_gpus": num_gpus, "gpus_per_node": gpus_per_node, "pp": "1", "tp": "1", "dp": "", "micro_batch": "1"}
    cluster = read_row(row(**cells, global_batch=num_gpus)).job.cluster
    assert (cluster.num_nodes, cluster.accelerators_per_node) == (nodes, per_node)


def test_an_nvlink_domain_joins_nodes_and_need_not_divide_the_ranks() -> None:
    cells = {"gpu": "GB200", "num_gpus": "128", "pp": "1", "tp": "1", "dp": "", "micro_batch": "1"}
    cells["global_batch"] = "128"
    racks = read_row(row(**cells, nvlink_domain="72")).job.cluster
    assert (racks.accelerators_per_node, racks.accelerators_per_domain) == (4, 64)
    assert read_row(row(**cells)).job.cluster == racks
    assert read_row(row(**cells, gpus_per_node="8", nvlink_domain="8")).job.cluster.accelerators_per_domain == 8


ACCELERATORS = {
    "a100-80gb": ("A100", "A100-80GB?"),
    "a100-40gb": ("A100-SXM4-40GB",),
    "h100-sxm": ("H100-80GB-SXM", "H100-80GB"),
    "h100-pcie": ("NVIDIA H100 PCIe", "H100 PCIe 80GB HBM2e"),
    "h100-96gb": ("H100-96GB-HBM2e-500W",),
    "h100-nvl": ("NVIDIA H100 NVL",),
    "h200": ("H200 141GB",),
    "gh200": ("GH200-96GB",),
    "gh200-144gb": ("GH200 144GB HBM3e",),
    "b200": ("DGX B200",),
    "b300": ("B300",),
    "gb200": ("GB200 NVL72",),
    "gb300": ("GB300",),
    "mi355x": ("AMD Instinct MI355X",),
    "a10": ("A10G",),
}


@pytest.mark.parametrize(("gpu", "name"), [(gpu, name) for name, gpus in ACCELERATORS.items() for gpu in gpus])
def test_an_accelerator_is_found_by_what_tables_call_it(gpu: str, name: str) -> None:
    assert read_row(row(gpu=gpu)).job.cluster.accelerator.name == name


def test_a_row_is_read_with_its_network_software_and_offloaded_recomputation() -> None:
    playbook = {"source": "HF ultrascale-playbook assets", "gpu": "H100"}
    assert read_row(row(**playbook, inter_node_link="hdr200")).job.cluster.inter_node_link.name == "hdr200"
    assert read_row(row(**playbook)).job.cluster.inter_node_link.name == "efa400"
    assert read_row(row(gpu="H100")).job.cluster.inter_node_link.name == "ndr400"
    layouts = [read_row(row(act_ckpt=text)).layout for text in ("full + offload", "cpu offloading", "full")]
    assert [layout.offload_activations for layout in layouts] == [True, True, False]
    assert [layout.recompute for layout in layouts] == [Recompute.FULL, Recompute.NONE, Recompute.FULL]
    assert [read_row(row(source=source)).job.stack.name for source in (ALEPH_ALPHA, MEGATRON, "mine")] == [
        "aleph-alpha",
        "megatron",
        "typical",
    ]
    known, unknown = (read_row(row(source=source)).job.cluster for source in (ALEPH_ALPHA, ""))
    assert known.oversubscription > unknown.oversubscription >= 1.0
    assert known.inter_node_link.congestion > 0.0


# ---------------------------------------------------------------- models
WIDTHS = {False: "4096", True: "2752"}
"""Of blocks without and with a gate that weigh about the same."""


def parameters_b(ffn: str, gated: bool, tied: bool, vocab: str = SHAPES["vocab"]) -> str:
    """Billions of parameters of the shapes in ``cells``, norms aside."""
    per_layer = 4 * 1024**2 + (3 if gated else 2) * 1024 * int(ffn)
    return str((16 * per_layer + (1 if tied else 2) * int(vocab) * 1024) / 1e9)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_tied_tables_are_recognised_from_the_parameter_count(gated: bool, tied: bool) -> None:
    ffn = WIDTHS[gated]
    model = read_row(row(ffn=ffn, params_b=parameters_b(ffn, gated, tied))).job.model
    assert (model.gated_mlp, model.tied_embeddings) == (gated, tied)


@pytest.mark.parametrize("gated", [False, True])
def test_a_parameter_count_that_does_not_suit_the_width_shows_whether_blocks_are_gated(gated: bool) -> None:
    ffn = {False: "3584", True: "8192"}[gated]  # narrower than plain blocks are, wider than gated ones are
    stated = parameters_b(ffn, gated, tied=False, vocab="1024")
    model = read_row(row(ffn=ffn, vocab="1024", params_b=stated)).job.model
    assert model.gated_mlp == gated


def test_blank_shapes_are_usual_and_narrow_blocks_and_known_families_gated() -> None:
    narrow, wide = (read_row(row(ffn=ffn)).job.model for ffn in ("2816", "4096"))
    assert (narrow.gated_mlp, narrow.norm) == (True, "rmsnorm")
    assert (wide.gated_mlp, wide.norm) == (False, "layernorm")
    assert read_row(row(ffn="4096", model="My-LLaMA-1B")).job.model.gated_mlp
    model = read_row(row(ffn="", kv_heads="", head_dim="")).job.model
    assert (model.ffn_size, model.num_kv_heads, model.head_dim) == (4 * 1024, 16, 64)
    assert read_row(row(vocab="", source=MEGATRON)).job.model.vocab_size == 51200
    assert read_row(row(head_dim="128", kv_heads="4")).job.model.key_value_size == 2 * 4 * 128


# ---------------------------------------------------------------- step times
def test_a_step_time_is_read_before_it_is_derived_from_tokens_and_micro_batches() -> None:
    assert read_row(row(tokens_per_s_per_gpu="1", tflops_per_gpu="1")).step_time_s == 1.5
    run = read_row(row(step_time_s="", tokens_per_s_per_gpu="4096"))
    assert run.step_time_s == 64 * 2048 / (4096 * 8)
    run = read_row(row(global_batch="", grad_accum="4"))
    assert run.job.workload.global_batch_size == 4 * 2 * 2  # micro-batches, their size, replicas


@pytest.mark.parametrize(("act_ckpt", "passes"), [("none", 3), ("full", 4)])
def test_hardware_flop_count_one_more_forward_where_layers_are_recomputed(act_ckpt: str, passes: int) -> None:
    run = read_row(row(step_time_s="", tflops_per_gpu="100", source=MEGATRON, act_ckpt=act_ckpt))
    model = run.job.model
    layers = 2 * 16 * (4 * 1024**2 + model.mlp_matrix_parameters) + model.attention_flop_per_token(2048)
    logits = 2 * 32000 * 1024  # not recomputed
    flop = 64 * 2048 * (passes * layers + 3 * logits)
    assert run.step_time_s == pytest.approx(flop / (100e12 * 8), rel=1e-12)  # rounding


@pytest.mark.parametrize(("framework", "attention"), [("nemo", 3), ("Megatron-Bridge", 1.5), ("", 3)])
def test_tflops_are_of_all_or_half_of_the_attention_as_the_software_counts(framework: str, attention: float) -> None:
    run = read_row(row(step_time_s="", tflops_per_gpu="100", framework=framework))
    model = run.job.model
    flop = 6 * model.num_active_matrix_parameters + attention * model.attention_flop_per_token(2048)
    assert run.step_time_s == pytest.approx(64 * 2048 * flop / (100e12 * 8), rel=1e-12)  # rounding


@pytest.mark.parametrize("oom", ["1", "1.0", "true", "Yes"])
def test_a_run_out_of_memory_has_no_step_time(oom: str) -> None:
    assert read_row(row(oom=oom, step_time_s="")).step_time_s is None


# ---------------------------------------------------------------- rows left out
def reason(**cells: str) -> str:
    with pytest.raises(UnusableRow) as caught:
        read_row(row(**cells))
    return str(caught.value)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"status": "failed_or_oom", "oom": "0"}, "the run was not completed: its status is failed_or_oom"),
        ({"notes": "run failed: Kernel not available"}, "run failed: Kernel not available"),
        ({"step_time_s": "0"}, "the value of the column step_time_s is not above 0"),
        ({"step_time_s": "nan"}, "the value of the column step_time_s is not a number"),
        (
            {"step_time_s": "", "tokens_per_s_per_gpu": "0"},
            "the value of the column tokens_per_s_per_gpu is not above 0",
        ),
        ({"step_time_s": ""}, "the row has neither a step time nor tokens per second"),
        ({"layers": ""}, "the column layers is empty, but it is required"),
        ({"layers": "many"}, "the value of the column layers is not a number"),
        ({"layers": "inf"}, "the value of the column layers is not a number"),
        ({"layers": "2.5"}, "the value of the column layers is not a whole number of 1 or more"),
        ({"hidden": "1e18"}, "the value of the column hidden is not a whole number of 1 or more"),
        ({"micro_batch": "0"}, "the value of the column micro_batch is not a whole number of 1 or more"),
        ({"heads": "12"}, "the number of heads does not divide the hidden size: 12, 1024"),
        ({"kv_heads": "3"}, "num_kv_heads must divide num_heads (16)"),
        ({"params_b": "70"}, "differs from the number computed from the sizes of the model"),
        ({"tp": "3"}, "the product of the parallel degrees differs from the number of accelerators"),
        ({"dp": "4"}, "the product of the parallel degrees differs from the number of accelerators"),
        ({"tp": "", "pp": ""}, "the column tp is empty, but it is required"),
        ({"global_batch": "63"}, "the layout is not legal, because of the rule whole-micro-batches"),
        ({"global_batch": ""}, "the column global_batch is empty, but it is required"),
        ({"tp": "4", "kv_heads": "2"}, "2 kv heads do not split over 4 tensor ranks"),
        ({"gpu": "TPU v5"}, "the accelerator 'TPU v5' is not in the catalog"),
        ({"gpu": "V100"}, "the accelerator v100 multiplies matrices only in fp32, not in bf16"),
        (
            {"precision": "fp8"},
            "the accelerator a100-80gb multiplies matrices only in fp32, bf16, fp8_emulated, not in fp8",
        ),
        ({"precision": "int4"}, "the precision is not a known name, such as bf16 or fp8: int4"),
        ({"inter_node_link": "token-ring"}, "token-ring"),
        ({"ep": "8"}, "the row has expert ranks, but the column num_experts is empty"),
        ({"zero_or_fsdp": "half"}, "the shard level is not a known name, such as zero1 or fsdp: half"),
        ({"schedule": "chimera"}, "a layout cannot express this pipeline schedule: chimera with 1 stage(s) per rank"),
        ({"act_ckpt": "some"}, "the recomputation is not a known name, such as none, selective or full: some"),
        ({"task": "LoRA"}, "fine-tuning by LoRA"),
        ({"suspect": "clock throttled"}, "the table marks the step time as suspect: clock throttled"),
    ],
)
def test_a_row_that_cannot_be_judged_says_why(cells: dict[str, str], words: str) -> None:
    assert words in reason(**cells)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table.csv"


def read(path: Path, rows: Sequence[Mapping[str, str]]) -> Table:
    """The table of those rows, written and read again."""
    columns = list(dict.fromkeys(column for cells in rows for column in cells))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return read_table(path)


def test_rows_of_one_sheet_share_a_name_and_differ_in_the_layout(path: Path) -> None:
    (sheet,) = read(path, [row(), row(tp="4"), row(micro_batch="1", oom="1"), row(act_ckpt="full")]).sheets
    assert len(sheet) == 4
    assert sheet.layouts.tensor_parallel_degree.tolist() == [2, 4, 2, 2]
    assert sheet.step_time_s[[0, 1, 3]].tolist() == [1.5, 1.5, 1.5]
    assert sheet.out_of_memory.tolist() == [False, False, True, False]
    path.write_text(",".join(REQUIRED_COLUMNS), encoding="utf-8")
    assert read_table(path).sheets == ()
    (sheet,) = read(path, [row(source="mine")]).sheets
    assert sheet.name == "mine: small, 8 x A100-80GB, 2048 tokens, batch 64"
    (sheet,) = read(path, [row(global_batch="", grad_accum="4")]).sheets
    assert sheet.name == "small, 8 x A100-80GB, 2048 tokens, batch ?"
    (sheet,) = read(path, [row(source="github someone/something " + 60 * "-" + "the/file/at/the/end.xlsx")]).sheets
    assert sheet.name.startswith("github someone/something ---...-----the/file/at/the/end.xlsx: small")


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        *(("source", "b"), ("model", "large"), ("gpu", "H100")),
        *(("num_gpus", "16"), ("seq_len", "4096"), ("global_batch", "128")),
    ],
)
def test_rows_of_another_source_model_cluster_or_batch_are_another_sheet(path: Path, column: str, cell: str) -> None:
    sheets = read(path, [row(source="a"), row(source="a") | {column: cell}, row(source="a")]).sheets
    assert [len(sheet) for sheet in sheets] == [2, 1]


def test_sheets_whose_names_are_alike_stay_apart_by_a_number(path: Path) -> None:
    sources = [f"github someone/something/at/{middle}{60 * '-'}the/end.xlsx" for middle in ("bf16", "fp8")]
    first, second = read(path, [row(source=source) for source in sources]).sheets
    assert second.name == f"{first.name} (2)"
    rows = [row(), row(vocab="64000"), row(), row(layers="")]
    first, second = read(path, rows).sheets
    assert (len(first), len(second)) == (2, 1)
    assert second.name == f"{first.name} (2)"
    assert (first.left_out, second.left_out) == ({"the column layers is empty, but it is required": 1}, {})  # told once


def test_rows_left_out_are_counted_by_reason_with_an_example_in_their_sheet_or_the_table(path: Path) -> None:
    rows = [row(), row(tp="3"), row(tp="5"), row(act_ckpt="some")]
    (sheet,) = read(path, rows).sheets
    assert sheet.left_out == {
        "the product of the parallel degrees differs from the number of accelerators": 2,
        "the recomputation is not a known name, such as none, selective or full": 1,
    }
    table = read(path, [row(), row(tp="3"), row(gpu="TPU"), row(tp="5"), row(act_ckpt="some")])
    assert table.examples == {
        "the product of the parallel degrees differs from the number of accelerators": "row 2: small, 8 x A100-80GB",
        "the accelerator 'TPU' is not in the catalog": "row 3: small, 8 x TPU",
        "the recomputation is not a known name, such as none, selective or full": "row 5: small, 8 x A100-80GB: some",
    }
    table = read(path, [row(), row(gpu="TPU"), row(gpu="NPU")])
    assert [sheet.left_out for sheet in table.sheets] == [{}]
    assert table.left_out == {
        "the accelerator 'TPU' is not in the catalog": 1,
        "the accelerator 'NPU' is not in the catalog": 1,
    }


def test_cells_may_hold_any_text_and_marks_comments_and_short_rows_are_read(path: Path) -> None:
    table = read(path, [row(notes='said "fast",\nthen "slow"'), row()])
    assert [len(sheet) for sheet in table.sheets] == [2]
    cells = row()
    path.write_text(f"\ufeff{', '.join(cells)}\n{', '.join(cells.values())}\n", encoding="utf-8")
    assert [len(sheet) for sheet in read_table(path).sheets] == [1]
    told = "# Measured in May, by hand\n# on one cluster\n\n"
    path.write_text(f"{told}{','.join(cells)}\n{','.join(cells.values())}\n", encoding="utf-8")
    assert [len(sheet) for sheet in read_table(path).sheets] == [1]
    path.write_text(f"{','.join(REQUIRED_COLUMNS)}\nsmall,16\n", encoding="utf-8")
    assert sum(read_table(path).left_out.values()) == 1


@pytest.mark.parametrize("column", REQUIRED_COLUMNS)
def test_a_table_that_lacks_a_column_is_refused_with_its_name(path: Path, column: str) -> None:
    others = [name for name in REQUIRED_COLUMNS if name != column]
    path.write_text(",".join(others), encoding="utf-8")
    with pytest.raises(InvalidInput, match=rf"must have the column\(s\) {column}; it has only {', '.join(others)}"):
        read_table(path)


def test_a_file_that_is_no_table_is_refused_with_what_is_wrong(path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_table(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_table(path)
    with pytest.raises(InvalidInput, match="must have at most 20,000,000 characters; split it into several tables"):
        read_table(Path("/dev/zero"))
    huge = 200_000 * "x"  # longer than Python's reader allows a cell to be
    path.write_text(f"{','.join(REQUIRED_COLUMNS)}\n{huge}\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="is not CSV at line"):
        read_table(path)
