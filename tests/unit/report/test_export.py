"""An export and an import say the same in a terminal, on a page, in Markdown and as JSON."""

from __future__ import annotations

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core import documents
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.workload import Workload
from autotuner.export.formats import export, read_with_model
from autotuner.export.target import Export, Imported
from autotuner.report.export import export_report, import_report
from tests.unit.report.surfaces import surfaces

JOB = Job(
    model=load_model("llama-3-8b"),
    cluster=load_cluster("h100:16"),
    workload=Workload(seq_len=8192, global_batch_size=128),
)
LAYOUT = Layout.parse("fsdp8 tp2 mb1 sp recompute-selective flash bf16")


def test_an_export_shows_its_words_its_use_and_what_they_cannot_say_on_every_surface() -> None:
    found = export(JOB, LAYOUT, "deepspeed")
    assert found.unsaid
    assert found.defaults
    for shown in surfaces(export_report(found)):
        assert str(LAYOUT) in shown
        assert found.files[0].text.split("\n")[1].strip() in shown
        assert all(reason.message[1:] in shown for reason in found.unsaid)
        assert all(default[1:] in shown for default in found.defaults)
    assert documents.restore(Export, documents.write(found)) == found
    assert documents.write(found)["text"] == found.text


def test_an_import_shows_its_layout_its_model_and_its_notes_on_every_surface() -> None:
    flags = "--tensor-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 128 --bf16 --seq-length 4096"
    found = read_with_model(flags, "megatron-lm", 16)
    for shown in surfaces(import_report(found)):
        assert found.label in shown
        assert "16 ranks; 128 sequences of 4096 tokens" in shown
        assert all(note.detail in shown for note in found.notes)
    assert documents.restore(Imported, documents.write(found)) == found
    assert documents.write(found)["stack"] == "megatron-core"
