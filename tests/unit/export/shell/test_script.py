"""A shell script is read without being run."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.errors import InvalidInput
from autotuner.export.shell.script import Script, read_script


def _commands(text: str) -> list[str]:
    return [" ".join(command.words) for command in read_script(text).commands]


def test_variables_are_put_in_with_and_without_braces() -> None:
    assert _commands('TP=8\nrun --tp $TP --pp ${TP} --name "x${TP}y"') == ["run --tp 8 --pp 8 --name x8y"]


def test_a_default_holds_where_nothing_sets_the_variable() -> None:
    text = "PP=4\nrun --tp ${TP:-8} --pp ${PP:-1} --cp ${CP:-${PP:-2}} --dir ${1:-out}"
    assert _commands(text) == ["run --tp 8 --pp 4 --cp 4 --dir out"]


def test_a_default_may_set_its_variable() -> None:
    assert _commands(": ${TP:=8}\nrun --tp $TP") == ["run --tp 8"]


def test_what_nothing_sets_stays_as_it_is_written_and_is_named() -> None:
    script = read_script("run --data $DATA --out $1 --host $(hostname)")
    assert script.commands[0].words == ("run", "--data", "$DATA", "--out", "$1", "--host", "$(hostname)")
    assert not script.commands[0].is_known
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
    first, second = (command.words for command in read_script(text).commands)
    assert first == ("run", "--num-layers", "96", "--split", "949,50,1", "--name", "two words")
    assert second[-3:] == ("--name", "two", "words")


def test_an_empty_array_is_no_argument_and_an_empty_quote_is_one() -> None:
    assert read_script('NONE=()\nrun "${NONE[@]}" ${NONE[@]} "" end').commands[0].words == ("run", "", "end")


def test_lines_are_continued_and_operators_end_commands() -> None:
    text = "run --a 1 \\\n  --b 2 > log.txt 2>&1 && other --c | tee x; last"
    assert _commands(text) == ["run --a 1 --b 2", "other --c", "tee x", "last"]


def test_a_quoted_line_that_goes_on_is_one_line() -> None:
    assert _commands('CMD="run --a 1 \\\n  --b 2"\neval $CMD') == ["run --a 1 --b 2"]


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


def test_what_a_file_decides_is_not_known() -> None:
    [command] = read_script("if [ -f x ]; then A=--yes; else A=--no; fi\nrun --flag $A").commands
    assert (command.words, command.is_known) == (("run", "--flag", "$A"), False)


def test_arguments_that_a_file_decides_are_left_out_and_named() -> None:
    [command] = read_script('A=(--tp 4)\nif [ -f x ]; then A+=(--load x); fi\nrun "${A[@]}" --end').commands
    assert (command.words, command.left_out) == (("run", "--tp", "4", "--end"), ("--load x",))


def test_a_command_that_a_file_decides_is_not_certain() -> None:
    commands = read_script("[ -f x ] && run --a\nrun --b").commands
    assert [(command.words[1], command.is_certain) for command in commands] == [("--a", False), ("--b", True)]


def test_a_test_before_an_assignment_decides_it() -> None:
    text = 'TP=2\n[ -n "$BIG" ] && TP=8\nEXTRA=--fp8\n[ "$BIG" ] && EXTRA=\n[ $TP -eq 2 ] || TP=16\nrun --tp $TP $EXTRA'
    assert _commands(text) == ["run --tp 2 --fp8"]


def test_assignments_in_functions_hold_after_a_call_and_local_ones_do_not() -> None:
    text = "f() { TP=$1; local PP=4; }\nPP=2\nf 8\nrun --tp $TP --pp $PP"
    assert _commands(text) == ["run --tp 8 --pp 2"]


@pytest.mark.parametrize("text", ["TP=1\n(TP=8)", "TP=1\nTP=8 | cat", "TP=1\nTP=8 &", "TP=1\nbash -c 'TP=8'"])
def test_assignments_of_a_process_of_its_own_are_lost(text: str) -> None:
    assert _commands(f"{text}\nrun --tp $TP")[-1] == "run --tp 1"


def test_let_and_double_parentheses_set_variables() -> None:
    text = "let TP=2*4 'PP = TP / 4'\n((N = TP * PP, N++))\nrun $TP $PP $N $((N > 16 ? 1 : 0))"
    assert _commands(text) == ["run 8 2 17 1"]


def test_parts_of_texts_are_cut_and_replaced() -> None:
    text = "N=llama-8b.json; run ${N%.*} ${N##*.} ${N:6:2} ${N/-/_} ${#N} {1..3} a{x,y}"
    assert _commands(text) == ["run llama-8b json 8b llama_8b.json 13 1 2 3 ax ay"]


def test_a_case_takes_the_first_pattern_that_fits() -> None:
    text = "S=70b\ncase $S in\n 8b) L=32;;\n 70b|72b) L=80 ;;\n *) L=1;;\nesac\nrun --num-layers $L"
    assert _commands(text) == ["run --num-layers 80"]


def test_every_round_of_a_loop_is_read() -> None:
    text = "for TP in 2 4; do run --tp $TP; done\nN=0\nwhile [ $N -lt 2 ]; do run --n $N; ((N++)); done"
    assert _commands(text) == ["run --tp 2", "run --tp 4", "run --n 0", "run --n 1"]


def test_what_a_loop_without_a_known_end_changes_is_not_known() -> None:
    script = read_script("N=1\nfor F in $(ls); do N=$((N+1)); done\nrun --n $N")
    assert script.commands[-1].words == ("run", "--n", "$N")
    assert script.notes == (
        "`for F in $(ls); do N=$((N+1)); done` is a loop over F whose rounds only a run would tell",
    )


def test_a_loop_that_never_ends_is_read() -> None:
    assert _commands("while true; do run --a; done")[0] == "run --a"


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


def test_a_variable_before_a_command_holds_for_it_alone() -> None:
    assert _commands("A=1\nA=2 run $A\nrun $A") == ["run 1", "run 1"]


def test_a_job_of_slurm_finds_its_nodes_in_variables() -> None:
    text = "#!/bin/bash\n#SBATCH --nodes=16\n#SBATCH --gpus-per-node h100:8\ntorchrun --nnodes $SLURM_NNODES"
    assert _commands(text) == ["torchrun --nnodes 16"]


def test_windows_lines_are_read() -> None:
    assert _commands("A=1\r\nrun --a $A\r\n") == ["run --a 1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run --a\nrun 'open", "line 2: reached EOF without closing quote"),
        ("if true\nrun", "line 1: .* must be followed by `then`"),
        ("run " + "$(" * 5000, "nested too deep"),
    ],
)
def test_a_text_that_bash_does_not_read_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_script(text)


def test_placeholders_are_words() -> None:
    assert _commands("run --load <path to data> --x <n>") == ["run --load <path to data> --x <n>"]


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
    with suppress(InvalidInput):
        assert isinstance(read_script("".join(pieces)), Script)
