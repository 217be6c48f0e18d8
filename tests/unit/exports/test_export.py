from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.catalog.software import stacks
from autotuner.core.choices import ExportFormat
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.exports.formats import export, read, recognise, target_of
from autotuner.exports.shared.command import flags_of, launched
from autotuner.exports.shared.target import Imported, NoteKind, stack_of
from tests.builders import big_job
from tests.properties.strategies import layouts


# ---------------------------------------------------------------- Layouts as arguments in our own words
@given(layouts)
def test_any_layout_is_read_back_from_its_arguments(layout: Layout) -> None:
    text = f"torchrun train.py {' '.join(export(big_job(), layout, 'arguments').arguments)}"
    back = read(text, "arguments")
    assert (back.layout, back.num_ranks, back.notes) == (layout, layout.world_size, ())
    assert (back.seq_len, back.global_batch_size) == (8192, 1024)


def test_ranks_that_no_degree_names_are_replicas_and_said_to_be_assumed() -> None:
    back = read("torchrun --nproc-per-node 8 train.py --tensor-parallel-degree 2 --lr 1e-3 --recompute-evry 2")
    assert (back.layout.data_parallel_replicate_degree, back.num_ranks) == (4, 8)
    assert [(note.setting, note.kind.value) for note in back.notes] == [
        ("--data-parallel-replicate-degree", "assumed"),
        ("--lr", "ignored"),
        ("--recompute-evry", "ignored"),
    ]
    assert back.notes[-1].detail.endswith("did you mean recompute_every?")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("--tensor-parallel-degree 0", "must be above 0; nearest legal value: 1"),
        ("--tensor-parallel-degree two", "must be a whole number"),
        ("--tensor-parallel-degree", "must be a whole number"),
        ("--shard-level some", "must be one of none, optimizer, gradients, parameters"),
        ("--tensor-parallel-degree 3", "must be 3, the product of the parallel degrees in the configuration"),
        ("--tensor-parallel-degree 2 --seq-len 0", "must be a whole number above 0"),
        ("--learning-rate 1", "must have at least one argument with the name of a field of a layout"),
    ],
)
def test_arguments_that_are_no_layout_are_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        read(text, "arguments", 8)


def test_arguments_are_recognised_by_fields_that_no_trainer_s_are_called_like() -> None:
    assert recognise("python train.py --data_parallel_shard_degree 8").format == "arguments"


# ---------------------------------------------------------------- flags
def test_flags_are_read_as_words_numbers_and_switches() -> None:
    flags = flags_of(["--a-b", "1", "--c=2", "--modules", "x", "y", "--switch", "-m", "name"])
    assert flags.values == {"a_b": ("1",), "c": ("2",), "modules": ("x", "y"), "switch": (), "m": ("name",)}
    flags = flags_of(["--micro-batch-size", "1", "--micro_batch_size", "2"])
    assert flags.integer("--micro-batch-size") == flags.integer("micro_batch_size") == 2
    assert "--micro-batch-size" in flags
    flags = flags_of(["--b"])
    assert [flags.integer("a"), flags.number("a"), flags.text("a"), flags.text("b")] == [None] * 4
    assert flags_of(["--shard", "-1"]).integer("shard") == -1
    assert flags_of(["--bucket", "4e8"]).integer("bucket") == 400_000_000
    flags = flags_of(["--a", "--b", "false", "--c=True"])
    assert [flags.switch(name) for name in "abcd"] == [True, False, True, None]


@pytest.mark.parametrize("text", ["1.5", "many", "inf", "nan", "1e400", "", "9" * 30])
def test_a_text_that_is_not_a_whole_number_is_refused_by_the_name_of_the_flag(text: str) -> None:
    with pytest.raises(InvalidInput, match="--bucket"):
        flags_of(["--bucket", text]).integer("--bucket")


def test_a_text_without_a_command_or_a_set_variable_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the script does not set"):
        flags_of(["--tp", "$TP"]).integer("--tp")
    with pytest.raises(InvalidInput, match="must contain a command with flags, for example torchrun"):
        launched("hello")


# ---------------------------------------------------------------- launched
def test_flags_and_variables_of_launchers_and_files_are_distinguished() -> None:
    found = launched("N=2\ntorchrun --nproc-per-node 8 --nnodes $N pretrain_gpt.py --bf16 --num-layers 4")
    assert found.program == "pretrain_gpt.py"
    assert found.num_ranks == 16
    assert found.arguments.values == {"bf16": (), "num_layers": ("4",)}
    found = launched("mkdir $(dirname $OUT)\nrun --data $DATA --out $1")
    assert [note.detail for note in found.notes] == [
        "the script does not set $DATA",
        "only a run of the script would show the value of $1",
    ]
    found = launched("torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --bind-gpus 1 train.py --bf16")
    assert [(note.kind, note.setting) for note in found.notes] == [
        (NoteKind.IGNORED, "--rdzv-backend"),
        (NoteKind.UNKNOWN, "--bind-gpus"),
    ]
    assert launched("STAGE=2\ntrain.py --bf16", document='{"stage": $STAGE}').notes == ()


@pytest.mark.parametrize(
    ("command", "num_ranks"),
    [
        ("torchrun --nproc_per_node=4 train.py --x", 4),
        ("torchrun --nproc_per_node=gpu train.py --x", None),
        ("torchrun --nnodes 1:4 --nproc_per_node 8 train.py --x", 32),
        ("uv run python -m torch.distributed.run --nproc_per_node 8 --nnodes 3 train.py --x", 24),
        ("deepspeed --num_gpus 8 --num_nodes 2 train.py --x", 16),
        ("accelerate launch --num_processes 8 train.py --x", 8),
        ("srun --ntasks-per-node 8 --nodes 4 python -u train.py --x", 32),
        ("srun -N 4 --ntasks-per-node=8 python -m pretrain.gpt --x", 32),
        ("WORLD_SIZE=6\npython train.py --x", 6),
        ("#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\nsrun python train.py --x", 32),
        ("#SBATCH --nodes=4\ntorchrun --nproc_per_node 8 train.py --x", 32),
        ("python train.py --x", None),
    ],
)
def test_ranks_are_those_that_the_launcher_starts(command: str, num_ranks: int | None) -> None:
    assert launched(command).num_ranks == num_ranks


def test_commands_are_found_in_process_lists_arrays_and_beside_others_with_fewer_flags() -> None:
    found = launched("/usr/bin/python3\0-u\0pretrain_gpt.py\0--name\0two words\0--bf16\0")
    assert found.arguments.values == {"name": ("two words",), "bf16": ()}
    assert launched("--bf16 --num-layers 4").arguments.integer("num_layers") == 4
    assert launched("A=(\n--num-layers 4\n)\nB=' --bf16 '").arguments.values == {"num_layers": ("4",), "bf16": ()}
    assert launched("mkdir --parents x\npython train.py --a 1 --b 2").arguments.integer("b") == 2


def test_every_variable_that_nothing_in_the_script_asks_for_is_reported() -> None:
    lines = ("export NCCL_DEBUG=WARN SPEED=fast", "SIZE=2", "OLD=1", "WANDB_MODE=offline train.py --mb $SIZE --bf16")
    found = launched("\n".join(lines))
    assert [(note.kind, note.setting) for note in found.notes] == [
        (NoteKind.IGNORED, "NCCL_DEBUG"),
        (NoteKind.IGNORED, "WANDB_MODE"),
        (NoteKind.UNKNOWN, "SPEED"),
        (NoteKind.IGNORED, "OLD"),
    ]


@given(st.text(max_size=80) | st.binary(max_size=80).map(lambda b: "--a " + b.decode("latin-1")))
def test_any_text_is_a_command_or_refused(text: str) -> None:
    with suppress(InvalidInput):
        assert launched(text).arguments or launched(text).launcher


# ---------------------------------------------------------------- scripts
SCRIPTS = Path(__file__).parent / "scripts"


def _told(found: Imported) -> list[str]:
    return [f"{note.kind} {note.setting}: {note.detail}" for note in found.notes]


@pytest.mark.parametrize("name", [path.stem for path in SCRIPTS.glob("*.sh") if "torchtitan" not in path.stem])
def test_every_flag_of_a_command_is_used_or_named(name: str) -> None:
    """A flag that no trainer has is named; so would be any other that nothing reads. Golden outputs hold layouts."""
    text = (SCRIPTS / f"{name}.sh").read_text()
    setting = "trainer.strategy.made_up=7" if name.startswith("nemo") else "--made-up-flag 7"
    for before in (
        "--micro-batch-size",
        "--per_device_train_batch_size",
        "data.micro_batch_size",
        "model.micro_batch_size",
    ):
        text = text.replace(before, f"{setting} {before}", 1)
    if setting not in text:
        text = text.replace("--deepspeed_config", f"{setting} --deepspeed_config", 1)
    assert f"unknown {setting}: is not a known setting, or has no effect on the layout" in _told(read(text))


def test_a_job_file_may_stand_before_or_behind_its_script() -> None:
    script, document = (SCRIPTS / "torchtitan_with_toml.sh").read_text().split("# llama3_8b.toml\n")
    assert read(f"{document}\n{script}").layout == read((SCRIPTS / "torchtitan_with_toml.sh").read_text()).layout


def test_arguments_of_the_trainer_count_whatever_starts_it() -> None:
    flags = "--per_device_train_batch_size 2 --bf16 True --torch_compile --optim adamw_bnb_8bit --use_liger_kernel"
    for launcher in ("torchrun --nproc_per_node 8", "accelerate launch --num_processes 8", "deepspeed --num_gpus 8"):
        found = read(f"{launcher} train.py {flags}")
        assert "compiled flash bf16" in str(found.layout)
        told = "\n".join(_told(found))
        assert "changed optim: adamw_bnb_8bit: the predicted time and states are those of AdamW" in told
        assert "ignored --use-liger-kernel: Liger's fused kernels" in told


# ---------------------------------------------------------------- formats
def test_a_format_that_nobody_knows_or_recognises_is_asked_for_among_all_that_there_are() -> None:
    with pytest.raises(InvalidInput, match="torchrun"):
        target_of("fortran")
    with pytest.raises(InvalidInput, match="name its format: "):
        recognise("once upon a time")


def test_every_format_has_a_stack_of_the_catalog() -> None:
    assert {stack_of(one) for one in ExportFormat} <= set(stacks())


@pytest.mark.parametrize(
    ("wanted", "text"),
    [("deepspeed", '{"\\ud800": 1, "zero_optimization": {"stage": 3}}'), ("megatron-bridge", "model.x='\\ud800'")],
)
def test_names_that_are_no_unicode_are_written_so_that_they_can_be_shown(wanted: str, text: str) -> None:
    assert str(read(text, wanted).notes).encode()
    assert all(f"{note.setting}{note.detail}".encode() for note in read(text, wanted).notes)
