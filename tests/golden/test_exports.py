"""Exports of 67 layouts in every format, and imports of scripts and configurations.

`layouts.json` holds the layouts by job, as words. They were drawn once, with a fixed seed: on each of the first four
jobs one layout that each format can say, in the order of the formats below, and four that any format may refuse, so
that all options together leave their defaults. Recorded of each export are its text (as a digest, and each line once
with the layouts whose text has it; of two layouts per format all of it), what the trainer cannot say, what it decides,
and how the text is read back. An export that is refused is recorded with its reasons.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.catalog.networks import load_preset
from autotuner.catalog.software import load_stack
from autotuner.core.choices import ExportFormat
from autotuner.core.cluster import Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.link import LinkHealth
from autotuner.core.rules.rule import Reason
from autotuner.core.workload import LengthDistribution, Workload
from autotuner.exports.formats import export, read, refusals
from autotuner.exports.shared.target import Export, Imported, stack_of
from tests.golden.golden import Golden

HERE = Path(__file__).parent
EXPORT_TESTS = HERE.parent / "unit/exports"

LAYOUTS: dict[str, list[str]] = json.loads((HERE / "layouts.json").read_text())

FORMATS = (
    "nemo",
    "megatron-bridge",
    "megatron-lm",
    "sbatch",
    "torchrun",
    "accelerate",
    "deepspeed",
    "torchtitan-config",
    "transformers",
    "torchtitan",
    "arguments",
)
"""In the order in which layouts were drawn for them."""

WRITTEN_OUT = ("moe", "nodes")
"""Jobs whose layout of a format is recorded as a whole."""

_SPEC = re.compile(r"<<'SPEC'\n(.*?)\nSPEC\n", re.DOTALL)


def _mixed_cluster() -> Cluster:
    """Return four nodes with one slow link, and a network that has rails and adds values in its switches."""
    slow = LinkHealth(ends=(1, 2), delay_s=0.03)
    return replace(load_cluster("b200:32"), network=load_preset("dgx-superpod").joining(4), link_health=(slow,))


def _jobs() -> dict[str, Job]:
    lengths = LengthDistribution(lengths=(512, 2048, 8192), weights=(5.0, 3.0, 2.0))
    found = {
        "dense": ("llama-3-8b", load_cluster("h100:8"), Workload(seq_len=8192, global_batch_size=64)),
        "moe": ("mixtral-8x7b", load_cluster("h100:16"), Workload(seq_len=4096, global_batch_size=128)),
        "cpu": ("llama-demo", load_cluster("cpu:4"), Workload(seq_len=128, global_batch_size=32)),
        "nodes": ("llama-3-70b", load_cluster("h100:32"), Workload(seq_len=8192, global_batch_size=512)),
        "mixed": ("llama-3-8b", _mixed_cluster(), Workload(seq_len=8192, global_batch_size=128, lengths=lengths)),
    }
    return {name: Job(model=load_model(one[0]), cluster=one[1], workload=one[2]) for name, one in found.items()}


JOBS = _jobs()


@pytest.mark.parametrize("wanted", FORMATS)
def test_layouts_are_exported_as_they_were(golden: Golden, wanted: str) -> None:
    found = _Exports(wanted)
    for name, job in JOBS.items():
        for place, words in enumerate(LAYOUTS[name]):
            found.add(name, replace(job, stack=load_stack(stack_of(ExportFormat(wanted)))), words, place)
    golden.check(f"exports/{wanted}", found.document())


def test_every_format_is_exported() -> None:
    assert set(FORMATS) == {one.value for one in ExportFormat}


def test_every_option_leaves_its_default_in_some_layout() -> None:
    layouts = [Layout.parse(words) for drawn in LAYOUTS.values() for words in drawn]
    assert [name for name, one in OPTIONS.items() if all(getattr(x, name) == one.default for x in layouts)] == []


@pytest.mark.parametrize("corpus", ["scripts", "launches", "texts"])
def test_scripts_and_configurations_are_imported_as_they_were(golden: Golden, corpus: str) -> None:
    folder = HERE / "imports" if corpus == "texts" else EXPORT_TESTS / corpus
    found = {path.name: _imported(path.read_text()) for path in sorted(folder.iterdir())}
    assert found
    golden.check(f"imports/{corpus}", found)


class _Exports:
    """All exports of one format. Each line and each sentence is recorded once, with the layouts that have it."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self._layouts: dict[str, Any] = {}
        self._exported: list[tuple[str, int]] = []
        self._whole: dict[str, Any] = {}
        self._said: dict[str, dict[str, list[tuple[str, int]]]] = defaultdict(lambda: defaultdict(list))

    def add(self, name: str, job: Job, words: str, place: int) -> None:
        """Export one layout, and record the result under its job and its place in the job's list."""
        layout, here = Layout.parse(words), (name, place)
        try:
            written = export(job, layout, self._wanted)
        except InvalidInput as error:
            self._layouts[f"{name} {place}"] = f"refused: {error.field}"
            self._note(here, "reasons", map(_reason, refusals(job, layout, ExportFormat(self._wanted))))
            return
        back = _imported(_readable(written), written.format)
        read_back = _changed(words, back["layout"]) if "layout" in back else back["message"]
        text, spec = _without_spec(written.text)
        self._layouts[f"{name} {place}"] = f"{_digest(text)}, read {read_back}"
        self._exported.append(here)
        self._note(here, "files", [one.name for one in written.files])
        self._note(here, "lines", text.splitlines())
        self._note(here, "reasons", map(_reason, written.unsupported))
        self._note(here, "defaults", written.left_to_trainer)
        self._note(here, "usage", [f"{written.version}: {written.usage}"])
        if name in WRITTEN_OUT and FORMATS.index(self._wanted) == place:
            self._whole[words] = _whole(written, spec)

    def document(self) -> dict[str, Any]:
        said = {
            kind: {text: "all" if where == self._exported else _places(where) for text, where in texts.items()}
            for kind, texts in self._said.items()
        }
        return {"layouts": self._layouts, **said, "whole": self._whole}

    def _note(self, here: tuple[str, int], kind: str, texts: Iterable[str]) -> None:
        for text in dict.fromkeys(texts):
            self._said[kind][text].append(here)


def _places(where: list[tuple[str, int]]) -> str:
    """Return the numbers of layouts by job."""
    return ", ".join(f"{name} {_ranges([place for job, place in where if job == name])}" for name in dict(where))


def _ranges(places: list[int]) -> str:
    """Return rising numbers in short, such as ``0-3 5``."""
    begins = [place for place in places if place - 1 not in places]
    ends = [place for place in places if place + 1 not in places]
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(begins, ends, strict=True))


def _without_spec(text: str) -> tuple[str, Any]:
    """Return a script without the JSON of its trial, and that JSON: its fields may be renamed, the script may not."""
    found = _SPEC.search(text)
    return (text, None) if found is None else (text.replace(found[1], "..."), json.loads(found[1]))


def _readable(written: Export) -> str:
    """Return the text that the reader of the format takes: a file holds no variables of the environment."""
    return written.text if written.arguments else "\n".join(one.text for one in written.files)


def _changed(before: str, after: str) -> str:
    """Return the words that a layout lost, and those that it gained."""
    old, new = before.split(), after.split()
    lost, gained = [word for word in old if word not in new], [word for word in new if word not in old]
    return f"{' '.join(lost)} -> {' '.join(gained)}" if lost or gained else "as it was"


def _whole(written: Export, spec: Any) -> dict[str, Any]:
    return {
        "files": {one.name: _without_spec(one.text)[0] for one in written.files},
        "spec": spec,
        "arguments": list(written.arguments),
        "environment": dict(written.environment),
        "defaults": list(written.left_to_trainer),
    }


def _imported(text: str, wanted: str | None = None) -> dict[str, Any]:
    try:
        return _of_import(read(text, wanted))
    except InvalidInput as error:
        return {"field": error.field, "rule": error.rule, "nearest": error.nearest, "message": str(error)}


def _of_import(found: Imported) -> dict[str, Any]:
    return {
        "format": found.format,
        "version": found.version,
        "layout": str(found.layout),
        "num_ranks": found.num_ranks,
        "seq_len": found.seq_len,
        "global_batch_size": found.global_batch_size,
        "model": found.model_name if found.model is None else f"{found.model.num_parameters:,} parameters",
        "notes": [f"{note.kind} {note.setting}: {note.detail}" for note in found.notes],
    }


def _reason(reason: Reason) -> str:
    nearest = "" if reason.nearest is None else f" (nearest: {reason.nearest})"
    return f"{reason.rule}: {reason.field}: {reason.message}{nearest}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
