"""A launch script's reader agrees with bash on every command that it calls known."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from autotuner.exports.shared.shell import read_script

_NAMES = ("A", "B", "TP", "ARGS")
_NUMBERS = st.integers(0, 9).map(str)
_NAME = st.sampled_from(_NAMES)
_SIZE = st.sampled_from(("TP", "N"))


def _joined(*parts: st.SearchStrategy[str] | str) -> st.SearchStrategy[str]:
    strategies = [st.just(part) if isinstance(part, str) else part for part in parts]
    return st.tuples(*strategies).map("".join)


_EXPANSIONS = st.one_of(
    _joined("$", _NAME),
    _joined("${", _NAME, "}"),
    _joined("${", _NAME, st.sampled_from((":-", "-", ":+", "+", ":=", "=")), _NUMBERS, "}"),
    _joined("${", _NAME, ":-${", _NAME, ":-", _NUMBERS, "}}"),
    _joined("${#", _NAME, "}"),
    _joined("${", _NAME, st.sampled_from(("%", "%%", "#", "##")), st.sampled_from(("1", "*-", "-*", "?")), "}"),
    _joined("${", _NAME, "/", _NUMBERS, "/x}"),
    _joined("${", _NAME, "[", st.sampled_from("01"), "]}"),
    _joined("${#", _NAME, "[@]}"),
    st.sampled_from(("$1", '"$2"', "$#", '"$@"', '"$*"', "'$A'", "$((TP*2))", "$(( N + 1 ))", "$(echo 3)")),
)
_WORDS = st.one_of(
    _NUMBERS,
    st.sampled_from(("--tp", "--x=1", "'a b'", '""', "a\\ b", "{1..3}", "p{q,r}")),
    _EXPANSIONS,
    _EXPANSIONS.filter(lambda text: not text.startswith(('"', "'"))).map(lambda text: f'"{text}"'),
    _joined('"', _NAME, "-$", _NAME, '"'),
    _joined('"${', _NAME, '[@]}"'),
    _joined("${", _NAME, "[*]}"),
)
_LIST = st.lists(_WORDS, max_size=4).map(" ".join)
_ARITHMETIC = st.one_of(
    _joined(_SIZE, st.sampled_from(("=", "+=", "*=")), _NUMBERS),
    _joined(_SIZE, st.sampled_from(("++", "--"))),
    _joined(_SIZE, "=", _SIZE, st.sampled_from(("+", "-", "*", "/", "%", "<", "==")), st.sampled_from("123")),
    _joined(_SIZE, "=", _SIZE, ">3?", _NUMBERS, ":", _NUMBERS),
    _joined(_SIZE, ">2&&(", _SIZE, "=", _NUMBERS, ")"),
)
_CONDITIONS = st.one_of(
    _joined('[ -n "$', _NAME, '" ]'),
    _joined('[ -z "${', _NAME, ':-}" ]'),
    _joined('[ "$', _NAME, '" ]'),
    _joined('! [ "$', _NAME, '" = ', _NUMBERS, " ]"),
    _joined("[ $TP ", st.sampled_from(("-gt", "-eq", "-le", "=")), " ", _NUMBERS, " ]"),
    _joined('[ "$A" = "$B" ', st.sampled_from(("-a", "-o")), ' -n "$TP" ]'),
    _joined(
        "[[ $",
        _NAME,
        " == ",
        st.sampled_from(("1*", '"1*"', "?", "a b", "$A")).map(lambda t: t.replace(" ", "")),
        " ]]",
    ),
    _joined("[[ -n $", _NAME, " && ! $", _NAME, " -lt ", _NUMBERS, " ]]"),
    _joined("(( ", _ARITHMETIC, " ))"),
    st.sampled_from(("true", "false", "[ -e /dev/null ]", "[ -e /nowhere ]", "test -n x", "grep -q x /dev/null")),
)
_SIMPLE = st.one_of(
    _joined(_NAME, "=", _WORDS.filter(lambda text: "{" not in text or "$" in text)),
    _joined(_NAME, "+=", _EXPANSIONS),
    _joined("ARGS=(", _LIST, ")"),
    _joined("ARGS+=(", _LIST, ")"),
    _joined("ARGS[", st.sampled_from("01"), "]=", _NUMBERS),
    _joined("TP=", _NUMBERS),
    _joined("torchrun ", _LIST),
    _joined("A=", _NUMBERS, " torchrun ", _LIST),
    _joined("let ", _ARITHMETIC.filter(lambda text: not set("?&<>*(") & set(text))),
    _joined("let '", _ARITHMETIC, "'"),
    _joined("(( ", _ARITHMETIC, " ))"),
    _joined("export ", _NAME, "=", _NUMBERS),
    _joined("unset ", _NAME),
    _joined("set -- ", _LIST),
    _joined("bash -c 'torchrun ", _NUMBERS, "'"),
    _joined("eval torchrun ", _LIST.filter(lambda text: "'" not in text and "\\" not in text)),
    _joined("bash <<'EOF'\ntorchrun ", _NUMBERS, "\nEOF\n"),
    _joined("bash <<EOF\ntorchrun $", _NAME, "\nEOF\n"),
    _joined("cat > /dev/null <<EOF\ntorchrun $", _NAME, "\nEOF\n"),
    st.sampled_from(("shift", "f", "f 1 'a b'", "g", ": ${TP:=4}", "break", "continue", "return", "exit 0")),
)


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    body = st.lists(inner, min_size=1, max_size=3).map("\n".join)
    return st.one_of(
        _joined("if ", _CONDITIONS, "; then\n", body, "\nelse\n", body, "\nfi"),
        _joined("if ", _CONDITIONS, "; then\n", body, "\nelif ", _CONDITIONS, "; then\n", body, "\nfi"),
        _joined(_CONDITIONS, st.sampled_from((" && ", " || ")), "{\n", body, "\n}"),
        _joined(_CONDITIONS, st.sampled_from((" && ", " || ")), _CONDITIONS, " && TP=", _NUMBERS),
        _joined("(\n", body, "\n)"),
        _joined("{\n", body, "\n} | cat"),
        _joined("f() {\nlocal ", _NAME, "=", _NUMBERS, "\n", body, "\n}"),
        _joined("g() {\n", body, "\n}"),
        _joined("for A in ", _LIST, "; do\n", body, "\ndone"),
        _joined("for ((I=0; I<", _NUMBERS, "; I++)); do\n", body, "\ndone"),
        _joined('case "$', _NAME, '" in\n', _NUMBERS, "|1*) ", body, "\n;;\n*) ", body, "\n;;\nesac"),
    )


_SCRIPTS = st.lists(st.recursive(_SIMPLE, _compound, max_leaves=6), min_size=2, max_size=8).map(
    lambda statements: "\n".join(
        ["A=1-2 B= TP=2 N=3 ARGS=(--x 1)", *statements, 'torchrun "$TP" "${ARGS[@]}" "$A" "$B"']
    )
)

_STUB = '#!/bin/bash\nprintf "%s\\0" torchrun "$@" >> "$LOG"\nprintf "\\n\\0" >> "$LOG"\n'


def _passed(script: str, folder: Path) -> list[tuple[str, ...]] | None:
    """Return the arguments that bash passes to a recording torchrun; None where the script does not end."""
    log = folder / "log"
    log.write_bytes(b"")
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "LOG": str(log)}
    try:
        subprocess.run(
            ["bash", "-c", script],
            env=environment,
            capture_output=True,
            timeout=10,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    commands: list[list[str]] = [[]]
    for word in log.read_bytes().decode().split("\0")[:-1]:
        if word == "\n":
            commands.append([])
        else:
            commands[-1].append(word)
    return [tuple(command) for command in commands[:-1]]


def _contradiction(script: str, passed: list[tuple[str, ...]]) -> str | None:
    """Return where the reader says something else than bash does; None: it does not."""
    found = [command for command in read_script(script).commands if command.words[:1] == ("torchrun",)]
    certain = [command for command in found if command.is_certain]
    at = 0
    for command in certain:
        fits = [n for n in range(at, len(passed)) if not command.is_known or passed[n] == command.words]
        if not fits:
            return f"{command} is not among {passed[at:]}"
        at = fits[0] + 1
    if len(certain) == len(found) and len(found) != len(passed) and not read_script(script).notes:
        return f"{len(found)} commands are read, and {len(passed)} run"
    return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stub")
    (path / "torchrun").write_text(_STUB)
    (path / "torchrun").chmod(0o755)
    return path


@seed(38)
@settings(max_examples=50, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(script=_SCRIPTS)
def test_the_reader_agrees_with_bash_or_says_that_it_does_not_know(script: str, folder: Path) -> None:
    passed = _passed(script, folder)
    if passed is not None:
        assert _contradiction(script, passed) is None, script
