"""The reports of exports and imports: a layout as a trainer's configuration, and a configuration as a layout."""

from __future__ import annotations

from collections.abc import Iterator

from autotuner.exports.shared.target import Export, Imported, NoteKind
from autotuner.report.prediction import prediction_report
from autotuner.report.report import Block, Code, Column, Figure, Folded, Lines, Notice, Report, Section, Strong, Table
from autotuner.report.words import counted, job_in_words, model_in_words
from autotuner.search.preview import PredictionTable

_KINDS = (NoteKind.CHANGED, NoteKind.UNKNOWN, NoteKind.ASSUMED, NoteKind.IGNORED)
"""Kinds of notes, the most important first."""


def export_report(export: Export, *, has_text: bool = True) -> Report:
    """Return the report of a layout in a trainer's format: the text, how to use it, and what the format cannot express.

    Settings that keep the trainer's defaults are listed, too.

    Args:
        export: The layout in the trainer's format.
        has_text: True if the text itself is part of the report; a command prints it separately.
    """
    codes = tuple(_codes(export)) if has_text else ()
    sections = [Section(blocks=(*codes, Lines(items=tuple(_usage(export)))))]
    if export.unsupported:
        unsupported = Lines(items=tuple(reason.message for reason in export.unsupported))
        sections.append(Section(title="Options that the format cannot express", blocks=(unsupported,)))
    if export.left_to_trainer:
        sections.append(Section(title="Settings that keep their value", blocks=(Lines(items=export.left_to_trainer),)))
    release = f" {export.version}" if export.version else ""
    return Report(headline=f"{export.format}{release}: {export.layout}", sections=sections)


def flags_section(export: Export) -> Section:
    """Return a layout in a trainer's format as the section "launch flags" for the page of its trial."""
    blocks: list[Block] = [*_codes(export)]
    if export.unsupported:
        reasons = tuple((reason.message,) for reason in export.unsupported)
        blocks.append(
            Notice(title="Options that the format cannot express", words=reasons[0], more=reasons[1:], look="warn")
        )
    if export.left_to_trainer:
        lines = Lines(items=tuple((one,) for one in export.left_to_trainer))
        blocks.append(Folded(summary="Settings that keep their value", blocks=(lines,)))
    note = f"{export.format} {export.version}. {export.usage}"
    return Section(id="use", title="Launch flags", note=note, blocks=blocks)


def _codes(export: Export) -> Iterator[Code]:
    """Yield the command line of the export, and each of its files."""
    if export.command_line:
        yield Code(export.command_line, name="arguments" if export.files else "")
    yield from (Code(file.text, name=file.name) for file in export.files)


def _usage(export: Export) -> Iterator[str]:
    if export.usage:
        yield f"use: {export.usage}"
    parts = [*(["arguments"] if export.arguments else []), *(file.name for file in export.files)]
    if len(parts) > 1:
        yield f"one file after the other: {', '.join(parts)}; --output FOLDER writes separate files"


def import_report(read: Imported) -> Report:
    """Return the report of an imported configuration: its layout, model and job, and how each setting was used."""
    figures = (
        Figure("layout", Strong(str(read.layout))),
        Figure("model", _model(read)),
        Figure("job", _job(read)),
    )
    columns = (
        Column("", is_number=False),
        Column("settings", is_number=False, may_wrap=True),
        Column("how they were read", is_number=False, may_wrap=True),
    )
    notes = Table(columns=columns, rows=tuple(_notes(read)))
    headline = f"Read as {' '.join(filter(None, (read.format, read.version)))}"
    return Report(headline=headline, sections=(Section(blocks=(figures, notes)),))


def _model(read: Imported) -> str:
    if read.model is None or read.model_size is None:
        return read.model_name or "not said"
    return f"{model_in_words(read.model_size)}: {read.model.num_layers} layers, {read.model.hidden_size} wide"


def _job(read: Imported) -> str:
    said = "the number of ranks is not given; the smallest possible number is assumed (--ranks)"
    if read.num_ranks:
        said = counted(read.num_ranks, "rank")
    sequences = f"{read.global_batch_size} sequences" if read.global_batch_size else "the global batch is not given"
    return f"{said}; {sequences}{f' of {read.seq_len} tokens' if read.seq_len else '; sequence length not said'}"


def _notes(read: Imported) -> Iterator[tuple[str, str, str]]:
    """Yield one row for each note; settings with the same note share a row."""
    for kind in _KINDS:
        settings: dict[str, list[str]] = {}
        for note in read.notes:
            if note.kind is kind:
                settings.setdefault(note.detail, []).append(note.setting)
        for detail, named in settings.items():
            yield kind.value, ", ".join(named), detail


def beside_best_report(read: Imported, found: PredictionTable, *, cluster: str, batch: int, seq_len: int) -> Report:
    """Return the report that compares the layout in use with the best predicted layouts that the same trainer can run.

    Args:
        read: The configuration in use, as it was imported.
        found: Predictions of the best layouts and of the layout in use.
        cluster: Name of the cluster that the predictions are for.
        batch: Number of sequences in a step.
        seq_len: Tokens of a sequence.
    """
    job = job_in_words(found.model_size, cluster=cluster, global_batch=batch, seq_len=seq_len)
    headline = f"{job}: the best that {read.format} can run, of {found.num_legal or 0:,} legal layouts"
    return prediction_report(found, headline)
