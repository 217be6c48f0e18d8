"""``python -m tests.fuzz.process NAME FOLDER SECONDS SEED``: one target under atheris, until time is up or it fails."""

from __future__ import annotations

import copy
import json
import random
import resource
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import atheris

_MOST_CPU_S = 1.0
_MOST_MORE_BYTES = 1 << 30
_MOST_INPUT_BYTES = 10_000
"""What an execution may take, instrumented: a second of a core, a gibibyte more than before, for that many bytes."""

_HANGS_S = 20
"""Seconds after which libFuzzer ends what has not come back, whoever else had the core."""


def main() -> None:
    """Run it; libFuzzer ends the process."""
    name, folder, seconds, seed = sys.argv[1:5]
    with atheris.instrument_imports(include=["autotuner", "api", "cronsim"]):
        from tests.fuzz.target import target_of  # noqa: PLC0415  # what is imported in here is instrumented

        target = target_of(name)
    path = Path(folder)
    (path / "words").write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
    corpus = path / "corpus"
    corpus.mkdir(exist_ok=True)
    for number, data in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(data)

    def run(data: bytes) -> None:
        started = time.process_time()
        try:
            target.run(data)
            taken_s = time.process_time() - started
            assert taken_s <= _MOST_CPU_S, f"{len(data)} bytes took {taken_s:.2f} s of a core"
        except BaseException:
            (path / "traceback").write_text(traceback.format_exc(chain=False), errors="backslashreplace")
            raise

    def mutate_json(data: bytes, max_size: int, number: int) -> bytes:
        rng = random.Random(number)
        try:
            document = json.loads(data) if rng.random() < 0.85 else None
        except (ValueError, RecursionError):
            document = None
        text = b"" if document is None else _dumped(mutated(document, rng))
        return text if 0 < len(text) <= max_size else bytes(atheris.Mutate(data, max_size))

    options = [
        *(f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={_MOST_INPUT_BYTES}", f"-timeout={_HANGS_S}"),
        *("-rss_limit_mb=0", "-print_final_stats=1", f"-artifact_prefix={path}/"),
        *([f"-dict={path / 'words'}"] if target.words else []),
    ]
    more: dict[str, Any] = {"custom_mutator": mutate_json} if target.is_json else {}
    atheris.Setup([sys.argv[0], *options, str(corpus)], run, **more)
    _limit_memory()
    atheris.Fuzz()


def _limit_memory() -> None:
    """An allocation beyond it is a ``MemoryError``, and so a failure."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = held + _MOST_MORE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _dumped(document: Any) -> bytes:
    return json.dumps(document).encode()


def _escaped(word: str) -> str:
    return "".join(f"\\x{byte:02x}" if byte in b'"\\' or not 32 <= byte < 127 else chr(byte) for byte in word.encode())


# ---------------------------------------------------------------- mutations that keep JSON documents whole
_STRANGE: tuple[Any, ...] = (
    *(0, 1, -1, 2, 3, 7, 64, 255, 10**5, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 10**18, 10**30, 10**400),
    *(0.0, -0.0, 0.5, 1e-320, -1.5, 1e308, float("nan"), float("inf"), float("-inf")),
    *(True, False, None, [], {}, [[]], [{}], {"": None}, [0] * 300),
    *("", " ", "\0", "\n", "\ud800", "a" * 300, "１２", "²", "1e999", "-1", "None", "../..", "{0}", "%s", "h100", "é"),
)
"""What parsers forget that there is: a fuzzer of bytes would seldom get past the first bracket."""


def mutated(document: Any, rng: random.Random) -> Any:
    """The document with one to four of its values, names or members changed."""
    root = [copy.deepcopy(document)]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        holder, key = rng.choice(list(_places(root)))
        match rng.randrange(6):
            case 0 | 1:
                holder[key] = copy.deepcopy(rng.choice(_STRANGE))
            case 2:
                holder[key] = _near(holder[key], rng)
            case 3 if holder is not root:
                del holder[key]
            case 4 if isinstance(holder, dict):
                holder[_renamed(key, rng)] = holder.pop(key)
            case _:
                donor, at = rng.choice(list(_places(root)))
                holder[key] = copy.deepcopy(donor[at])
    return root[0]


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every value of a document, as what holds it and where."""
    members = list(node.items()) if isinstance(node, dict) else list(enumerate(node)) if isinstance(node, list) else []
    for key, value in members:
        yield node, key
        yield from _places(value)


def _near(value: Any, rng: random.Random) -> Any:
    """A value near another, of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return rng.choice((value + 1, value - 1, -value, value * 2, value * 10**6))
        case str():
            at = rng.randrange(len(value) + 1)
            return value[:at] + rng.choice(("", "-", "0", "9", ".", "\0", "é", " ")) + value[at + 1 :]
        case list():
            return value * 2
        case _:
            return [value]


def _renamed(name: str, rng: random.Random) -> str:
    return rng.choice((name + "s", name[:-1], "", "\ud800", "name", "base", "type", "x" * 200))


if __name__ == "__main__":
    main()
