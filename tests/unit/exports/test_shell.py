"""A shell script is read without being run."""

from __future__ import annotations

import subprocess
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.errors import InvalidInput
from autotuner.exports.shared.shell import Script, read_script


def _commands(text: str) -> list[str]:
    return [" ".join(command.words) for command in read_script(text).commands]


READ: dict[str, tuple[str, list[str]]] = {
    "variables are put in with and without braces": (
        'TP=8\nrun --tp $TP --pp ${TP} --name "x${TP}y"',
        ["run --tp 8 --pp 8 --name x8y"],
    ),
    "a default holds where nothing sets the variable": (
        "PP=4\nrun --tp ${TP:-8} --pp ${PP:-1} --cp ${CP:-${PP:-2}} --dir ${1:-out}",
        ["run --tp 8 --pp 4 --cp 4 --dir out"],
    ),
    "a default may set its variable": (": ${TP:=8}\nrun --tp $TP", ["run --tp 8"]),
    "lines are continued and operators end commands": (
        "run --a 1 \\\n  --b 2 > log.txt 2>&1 && other --c | tee x; last",
        ["run --a 1 --b 2", "other --c", "tee x", "last"],
    ),
    "a quoted line that goes on is one line": ('CMD="run --a 1 \\\n  --b 2"\neval $CMD', ["run --a 1 --b 2"]),
    "sums of whole numbers are computed": (
        "G=8\nN=$((2*3))\nrun --ranks $(($G * N)) --odd $((7/0)) $((2**9999))",
        ["run --ranks 48 --odd $((7/0)) $((2**9999))"],
    ),
    "a test before an assignment decides it": (
        'TP=2\n[ -n "$BIG" ] && TP=8\nEXTRA=--fp8\n[ "$BIG" ] && EXTRA=\n[ $TP -eq 2 ] || TP=16\nrun --tp $TP $EXTRA',
        ["run --tp 2 --fp8"],
    ),
    "assignments in functions hold after a call and local ones do not": (
        "f() { TP=$1; local PP=4; }\nPP=2\nf 8\nrun --tp $TP --pp $PP",
        ["run --tp 8 --pp 2"],
    ),
    "let and double parentheses set variables": (
        "let TP=2*4 'PP = TP / 4'\n((N = TP * PP, N++))\nrun $TP $PP $N $((N > 16 ? 1 : 0))",
        ["run 8 2 17 1"],
    ),
    "parts of texts are cut and replaced": (
        "N=llama-8b.json; run ${N%.*} ${N##*.} ${N:6:2} ${N/-/_} ${#N} {1..3} a{x,y}",
        ["run llama-8b json 8b llama_8b.json 13 1 2 3 ax ay"],
    ),
    "braces beside a variable stay as they are written": ("A=1\nrun $A{1,2}", ["run $A{1,2}"]),  # once crashed
    "a case takes the first pattern that fits": (
        "S=70b\ncase $S in\n 8b) L=32;;\n 70b|72b) L=80 ;;\n *) L=1;;\nesac\nrun --num-layers $L",
        ["run --num-layers 80"],
    ),
    "every round of a loop is read": (
        "for TP in 2 4; do run --tp $TP; done\nN=0\nwhile [ $N -lt 2 ]; do run --n $N; ((N++)); done",
        ["run --tp 2", "run --tp 4", "run --n 0", "run --n 1"],
    ),
    "a variable before a command holds for it alone": ("A=1\nA=2 run $A\nrun $A", ["run 1", "run 1"]),
    "a job of slurm finds its nodes in variables": (
        "#!/bin/bash\n#SBATCH --nodes=16\n#SBATCH --gpus-per-node h100:8\ntorchrun --nnodes $SLURM_NNODES",
        ["torchrun --nnodes 16"],
    ),
    "windows lines are read": ("A=1\r\nrun --a $A\r\n", ["run --a 1"]),
    "placeholders are words": ("run --load <path to data> --x <n>", ["run --load <path to data> --x <n>"]),
}


@pytest.mark.parametrize(("text", "commands"), READ.values(), ids=READ)
def test_commands_are_those_that_bash_would_run(text: str, commands: list[str]) -> None:
    assert _commands(text) == commands


def test_settings_that_a_file_decides_are_open_and_undecided_ones_are_named() -> None:
    script = read_script("run --data $DATA --out $1 --host $(hostname)")
    assert script.commands[0].words == ("run", "--data", "$DATA", "--out", "$1", "--host", "$(hostname)")
    assert not script.commands[0].is_known
    assert (script.unset, script.unknown) == (("DATA",), ("$1", "$(hostname)"))
    [command] = read_script("if [ -f x ]; then A=--yes; else A=--no; fi\nrun --flag $A").commands
    assert (command.words, command.is_known) == (("run", "--flag", "$A"), False)
    [command] = read_script('A=(--tp 4)\nif [ -f x ]; then A+=(--load x); fi\nrun "${A[@]}" --end').commands
    assert (command.words, command.left_out) == (("run", "--tp", "4", "--end"), ("--load x",))
    commands = read_script("[ -f x ] && run --a\nrun --b").commands
    assert [(command.words[1], command.is_certain) for command in commands] == [("--a", False), ("--b", True)]


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


def test_quoted_and_exported_words_are_distinguished_from_empty_ones() -> None:
    assert read_script('NONE=()\nrun "${NONE[@]}" ${NONE[@]} "" end').commands[0].words == ("run", "", "end")
    script = read_script("export A=1 B=2\nC=3 run --x\nunset A")
    assert (script.variables.get("A"), script.variables["B"], script.variables["C"]) == (None, "2", "3")


def test_a_condition_that_the_text_decides_is_followed() -> None:
    text = """
    DTYPE=fp8
    if [[ "$DTYPE" == "fp8" ]] && [ -z "$NOTHING" ]; then ARGS+=(--fp8-format hybrid); else ARGS+=(--bf16); fi
    if [ ! "$DTYPE" = fp8 ]; then ARGS+=(--a); elif [ 2 -gt 1 ]; then ARGS+=(--b); else ARGS+=(--c); fi
    run ${ARGS[@]}
    """
    assert _commands(text) == ["run --fp8-format hybrid --b"]


@pytest.mark.parametrize("text", ["TP=1\n(TP=8)", "TP=1\nTP=8 | cat", "TP=1\nTP=8 &", "TP=1\nbash -c 'TP=8'"])
def test_assignments_of_a_process_of_its_own_are_lost(text: str) -> None:
    assert _commands(f"{text}\nrun --tp $TP")[-1] == "run --tp 1"


def test_variables_that_an_unbounded_loop_changes_are_unknown() -> None:
    script = read_script("N=1\nfor F in $(ls); do N=$((N+1)); done\nrun --n $N")
    assert script.commands[-1].words == ("run", "--n", "$N")
    assert script.notes == (
        "`for F in $(ls); do N=$((N+1)); done` is a loop over F, and only a run would show its rounds",
    )


@pytest.mark.parametrize(
    "text",
    [
        "C='run --a 1'\neval $C",
        'C="run --a 1"\nsrun bash -c "$C"',
        "sbatch -N 2 <<EOF\nrun --a 1\nEOF",
        "C='run --a 1'\n$C",
        "f() {\n run --a 1\n}",
        "f() {\n run --a 1\n exit 1\n}",  # once crashed: nothing calls it, and it ends the script
        "(export X=1; run --a 1)",
        "CUDA_DEVICE_MAX_CONNECTIONS=1 run --a 1",
    ],
)
def test_a_command_is_found_wherever_it_is_handed_to_a_shell(text: str) -> None:
    assert "run --a 1" in _commands(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run --a\nrun 'open", "line 2: reached EOF without closing quote"),
        ("if true\nrun", "line 1: .* must be followed by `then`"),
        ("run " + "$(" * 5000, "nested too deeply"),
    ],
)
def test_a_text_that_bash_does_not_read_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_script(text)


def test_a_parser_that_crashes_or_hangs_refuses_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("shfmt", 10)

    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess((), -11, b"", b""))
    with pytest.raises(InvalidInput, match="cannot be read as a shell script"):
        read_script("run --crashes")
    monkeypatch.setattr(subprocess, "run", hang)
    with pytest.raises(InvalidInput, match="takes more than 10 s to parse as a shell script; shorten it"):
        read_script("run --hangs")


def test_scripts_without_end_are_refused_or_read_in_part() -> None:
    with pytest.raises(InvalidInput, match="characters"):
        read_script("A=aaaaaaaaaa\n" + "A=$A$A\n" * 40)
    with pytest.raises(InvalidInput, match="inside each other"):
        read_script("run " + "${A:-" * 50 + "}" * 50)
    with pytest.raises(InvalidInput, match="at most"):
        read_script("#" * 200_001)
    assert _commands("while true; do run --a; done")[0] == "run --a"


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
