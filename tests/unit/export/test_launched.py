"""The training command of a text is found, whichever way it was copied."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.errors import InvalidInput
from autotuner.export.launched import launched
from autotuner.export.target import NoteKind


def test_flags_of_the_launcher_and_of_the_program_are_told_apart() -> None:
    found = launched("N=2\ntorchrun --nproc-per-node 8 --nnodes $N pretrain_gpt.py --bf16 --num-layers 4")
    assert found.program == "pretrain_gpt.py"
    assert found.num_ranks == 16
    assert found.arguments.values == {"bf16": (), "num_layers": ("4",)}


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


def test_a_process_list_separates_words_by_nul() -> None:
    found = launched("/usr/bin/python3\0-u\0pretrain_gpt.py\0--name\0two words\0--bf16\0")
    assert found.arguments.values == {"name": ("two words",), "bf16": ()}


def test_arguments_alone_and_arrays_alone_are_read() -> None:
    assert launched("--bf16 --num-layers 4").arguments.integer("num_layers") == 4
    assert launched("A=(\n--num-layers 4\n)\nB=' --bf16 '").arguments.values == {"num_layers": ("4",), "bf16": ()}


def test_of_several_commands_that_with_most_flags_counts() -> None:
    assert launched("mkdir --parents x\npython train.py --a 1 --b 2").arguments.integer("b") == 2


def test_of_what_nothing_resolves_that_in_the_command_is_told() -> None:
    found = launched("mkdir $(dirname $OUT)\nrun --data $DATA --out $1")
    assert [note.detail for note in found.notes] == ["nothing sets $DATA", "only a run would tell $1"]


def test_every_flag_of_the_launcher_is_told() -> None:
    found = launched("torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --bind-gpus 1 train.py --bf16")
    assert [(note.kind, note.setting) for note in found.notes] == [
        (NoteKind.IGNORED, "--rdzv-backend"),
        (NoteKind.UNKNOWN, "--bind-gpus"),
    ]


def test_every_variable_that_nothing_in_the_script_asks_for_is_told() -> None:
    lines = ("export NCCL_DEBUG=WARN SPEED=fast", "SIZE=2", "OLD=1", "WANDB_MODE=offline train.py --mb $SIZE --bf16")
    found = launched("\n".join(lines))
    assert [(note.kind, note.setting) for note in found.notes] == [
        (NoteKind.IGNORED, "NCCL_DEBUG"),
        (NoteKind.IGNORED, "WANDB_MODE"),
        (NoteKind.UNKNOWN, "SPEED"),
        (NoteKind.IGNORED, "OLD"),
    ]


def test_a_file_that_the_script_writes_asks_for_variables() -> None:
    assert launched("STAGE=2\ntrain.py --bf16", document='{"stage": $STAGE}').notes == ()


def test_a_text_without_flags_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no command with --flags"):
        launched("hello")


@given(st.text(max_size=80) | st.binary(max_size=80).map(lambda b: "--a " + b.decode("latin-1")))
def test_any_text_is_a_command_or_refused(text: str) -> None:
    with suppress(InvalidInput):
        assert launched(text).arguments or launched(text).launcher
