"""Configurations of trainers: command lines, scripts, JSON, YAML, TOML, Python."""

from __future__ import annotations

from pathlib import Path

from autotuner.core.choices import ExportFormat
from autotuner.core.codec import from_plain, to_plain
from autotuner.core.layout import Layout
from autotuner.exports.formats import FORMATS, read
from tests.builders import big_job
from tests.fuzz.target import Target, text_of

_LAUNCHES = Path(__file__).parents[1] / "unit/exports/launches"

_LAYOUTS = (
    "fsdp8 tp8 mb1 sp flash bf16",
    "dp2 zero4 tp4 pp2 1f1b mb1 sp recompute-full flash bf16",
    "fsdp16 cp2 pp2 mb1 recompute-selective cudnn fp8",
)

_JSON = (ExportFormat.DEEPSPEED,)

_WORDS = (
    *("--", "=", "\\\n", "${", "}", "$((", "))", "${A:-1}", "<<EOF\n", "if [ ", "]; then\n", "fi\n", "for i in "),
    *("--tensor-model-parallel-size", "--num-layers", "--world-size", "--fp8-format", "NNODES=", "export ", "#SBATCH "),
    *("1e999", "-1", "[parallelism]", "fsdp:\n", "- ", "&a", "*a", '"zero_optimization"', "stage", "auto", "!!python/"),
    *("JobConfig(", "Parallelism(", "None", "**", "lambda: ", "0x", "1_000", "true", "null", "do\n"),
)


def _seeds(name: ExportFormat | None) -> tuple[bytes, ...]:
    formats = FORMATS if name is None else (name,)
    exported = tuple(
        FORMATS[one].write(big_job(), Layout.parse(words)).text.encode() for one in formats for words in _LAYOUTS
    )
    published = tuple(path.read_bytes() for path in sorted(_LAUNCHES.iterdir()))
    is_megatron = name in (None, ExportFormat.MEGATRON_LM)
    return (*exported, *(published if is_megatron else ()))


def _target(name: ExportFormat | None) -> Target:
    def check(data: bytes) -> None:
        """A layout that was read is one, and what is told of it can be shown."""
        found = read(text_of(data), name, (None, 8, 64)[len(data) % 3])
        assert from_plain(type(found.layout), to_plain(found.layout)) == found.layout
        if found.model is not None:
            assert from_plain(type(found.model), to_plain(found.model)) == found.model
        found.model_name.encode()
        for note in found.notes:
            f"{note.setting} {note.detail}".encode()

    seeds = _seeds(name)
    return Target(
        name=str(name or "recognised").replace("-", "_"), check=check, seeds=seeds, words=_WORDS, is_json=name in _JSON
    )


TARGETS = (_target(None), *(_target(name) for name, target in FORMATS.items() if target.read is not None))
