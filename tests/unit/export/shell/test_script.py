"""A shell script is read without being run."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.errors import InvalidInput
from autotuner.export.shell.script import Script, read_script


def _commands(text: str) -> list[str]:
    return [" ".join(command) for command in read_script(text).commands]


def test_variables_are_put_in_with_and_without_braces() -> None:
    assert _commands('TP=8\nrun --tp $TP --pp ${TP} --name "x${TP}y"') == ["run --tp 8 --pp 8 --name x8y"]


def test_a_default_holds_where_nothing_sets_the_variable() -> None:
    text = "PP=4\nrun --tp ${TP:-8} --pp ${PP:-1} --cp ${CP:-${PP:-2}} --dir ${1:-out}"
    assert _commands(text) == ["run --tp 8 --pp 4 --cp 4 --dir out"]


def test_a_default_may_set_its_variable() -> None:
    assert _commands(": ${TP:=8}\nrun --tp $TP") == ["run --tp 8"]


def test_what_nothing_sets_stays_as_it_is_written_and_is_named() -> None:
    script = read_script("run --data $DATA --out $1 --host $(hostname)")
    assert script.commands == (("run", "--data", "$DATA", "--out", "$1", "--host", "$(hostname)"),)
    assert (script.unset, script.unknown) == (("DATA",), ("$1", "$(hostname)"))


def test_arrays_keep_their_elements_and_lose_their_comments() -> None:
    text = """
    ARGS=(
        --num-layers 96  # of which none is shared
        # --hidden-size 1
        --split "949,50,1"
    )
    ARGS+=(--name "two words")
    run "${ARGS[@]}"
    run ${ARGS[@]}
    """
    first, second = read_script(text).commands
    assert first == ("run", "--num-layers", "96", "--split", "949,50,1", "--name", "two words")
    assert second[-3:] == ("--name", "two", "words")


def test_an_empty_array_is_no_argument_and_an_empty_quote_is_one() -> None:
    assert read_script('NONE=()\nrun "${NONE[@]}" ${NONE[@]} "" end').commands == (("run", "", "end"),)


def test_lines_are_continued_and_operators_end_commands() -> None:
    text = "run --a 1 \\\n  --b 2 > log.txt 2>&1 && other --c | tee x; last"
    assert _commands(text) == ["run --a 1 --b 2", "other --c", "tee x", "last"]


def test_a_quoted_line_that_goes_on_is_one_line() -> None:
    script = read_script('CMD="run --a 1 \\\n  --b 2"\neval $CMD')
    assert script.commands == (("run", "--a", "1", "--b", "2"),)


def test_sums_of_whole_numbers_are_computed() -> None:
    assert _commands("G=8\nN=$((2*3))\nrun --ranks $(($G * N)) --odd $((7/0)) $((2**9999))") == [
        "run --ranks 48 --odd $((7/0)) $((2**9999))"
    ]


def test_a_condition_that_the_text_decides_is_followed() -> None:
    text = """
    DTYPE=fp8
    if [[ "$DTYPE" == "fp8" ]] && [ -z "$NOTHING" ]; then ARGS+=(--fp8-format hybrid); else ARGS+=(--bf16); fi
    if [ ! "$DTYPE" = fp8 ]; then ARGS+=(--a); elif [ 2 -gt 1 ]; then ARGS+=(--b); else ARGS+=(--c); fi
    run ${ARGS[@]}
    """
    assert _commands(text) == ["run --fp8-format hybrid --b"]


def test_a_condition_that_a_file_decides_is_left_out_and_said() -> None:
    script = read_script("if [ -f x ]; then A=--yes; else A=--no; fi\nrun --flag $A")
    assert script.commands == (("run", "--flag", "$A"),)
    assert script.notes[0] == "what depends on a condition that only a run decides was left out"


def test_a_case_takes_the_first_pattern_that_fits() -> None:
    text = "S=70b\ncase $S in\n 8b) L=32;;\n 70b|72b) L=80 ;;\n *) L=1;;\nesac\nrun --num-layers $L"
    assert _commands(text) == ["run --num-layers 80"]


def test_of_a_loop_the_first_round_is_read() -> None:
    script = read_script("for TP in 2 4; do\n run --tp $TP\ndone\nwhile true; do run --never; done")
    assert script.commands == (("run", "--tp", "2"),)
    assert script.notes == ("of the loop over TP the first round is read",)


@pytest.mark.parametrize(
    "text",
    [
        "C='run --a 1'\neval $C",
        'C="run --a 1"\nsrun bash -c "$C"',
        "sbatch -N 2 <<EOF\nrun --a 1\nEOF",
        "C='run --a 1'\n$C",
        "f() {\n run --a 1\n}",
        "(export X=1; run --a 1)",
        "CUDA_DEVICE_MAX_CONNECTIONS=1 run --a 1",
    ],
)
def test_a_command_is_found_wherever_it_is_handed_to_a_shell(text: str) -> None:
    assert "run --a 1" in _commands(text)


def test_exported_variables_and_those_before_a_command_are_known() -> None:
    script = read_script("export A=1 B=2\nC=3 run --x\nunset A")
    assert (script.variables.get("A"), script.variables["B"], script.variables["C"]) == (None, "2", "3")


def test_a_job_of_slurm_finds_its_nodes_in_variables() -> None:
    text = "#!/bin/bash\n#SBATCH --nodes=16\n#SBATCH --gpus-per-node h100:8\ntorchrun --nnodes $SLURM_NNODES"
    assert _commands(text) == ["torchrun --nnodes 16"]


def test_windows_lines_and_quotes_left_open_are_read() -> None:
    assert _commands("A=1\r\nrun --a $A\r\nrun 'open") == ["run --a 1", "run ope"]


def test_variables_that_double_are_refused() -> None:
    with pytest.raises(InvalidInput, match="characters"):
        read_script("A=aaaaaaaaaa\n" + "A=$A$A\n" * 40)


def test_defaults_nested_too_deep_are_refused() -> None:
    with pytest.raises(InvalidInput, match="deep"):
        read_script("run " + "${A:-" * 50 + "}" * 50)


def test_a_text_longer_than_scripts_are_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at most"):
        read_script("#" * 200_001)


@given(st.text(alphabet=st.sampled_from("aAB=$(){}[]\"'`\\\n ;|&<>#-+*/1@!:ifthenforcasedo\t\0"), max_size=120))
def test_any_text_makes_a_script(text: str) -> None:
    with suppress(InvalidInput):
        assert isinstance(read_script(text), Script)


_PIECES = ("if ", "then ", "fi\n", "for a in ", "do ", "done\n", "case ", "in ", "esac\n", "[[ ", "]] ", "A=(", ") ")
_MORE = ("&& ", "$A ", '"${A[@]}" ', "<<E\n", "E\n", "${A:-", "} ", "eval ", "bash -c ", "$((1+", "x ", "; ", ";;\n")


@given(st.lists(st.sampled_from(_PIECES + _MORE), max_size=30))
def test_any_order_of_keywords_makes_a_script(pieces: list[str]) -> None:
    assert isinstance(read_script("".join(pieces)), Script)
