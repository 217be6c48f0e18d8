"""``python -m tests.fuzz.process NAME FOLDER SECONDS SEED``: one target under atheris, until time is up or it fails."""

from __future__ import annotations

import json
import random
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import atheris

from tests.fuzz.mutation import mutated

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
        from tests.fuzz.registry import target_of  # noqa: PLC0415  # what is imported in here is instrumented

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


if __name__ == "__main__":
    main()
