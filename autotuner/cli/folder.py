"""``--save-dir``: a folder from which a trainer can be started with a layout, and which says what was predicted."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from autotuner.cli.console import notes, progress
from autotuner.cli.files import write_text
from autotuner.connections import answering, may_name_stored
from autotuner.core import documents
from autotuner.core.choices import ExportFormat, ExportLauncher
from autotuner.core.codec import to_plain
from autotuner.core.model import TransformerSpec
from autotuner.core.named import resolve
from autotuner.core.requests import ExplanationRequest, ExportRequest, JobRequest

if TYPE_CHECKING:
    from autotuner.core.layout import Layout
    from autotuner.core.stack import Stack
    from autotuner.exports.shared.target import Export
    from autotuner.remote import Remote
    from autotuner.report.report import Report
    from autotuner.search.predicted_ranking import PredictedLayout

SaveDir: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--save-dir", help="Folder to write: scripts that start your trainer with the layout, and what was predicted."
    ),
]

_OPTION = "--save-dir"


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A layout to save, with the answers of the product about it."""

    layout: Layout
    format: ExportFormat
    """Trainer that the scripts of the folder start."""
    export: Callable[[ExportFormat, ExportLauncher | None], Export]
    """Function that returns the layout as the configuration of a trainer."""
    explanation: Report
    layouts: Sequence[PredictedLayout] = ()
    """Predicted layouts, the best first; empty if the command predicted no others."""


def save(folder: Path, one: Saved) -> None:
    """Write the folder, and print its name.

    Raises:
        InvalidInput: A file cannot be written.
    """
    with progress("writing the folder"):
        _write(folder, one)
    said = f"{folder} has the layout, scripts and what was predicted; its README.md says how to start."
    notes().print(said, highlight=False, soft_wrap=True)


def _write(folder: Path, one: Saved) -> None:
    from autotuner.report.markdown import markdown

    texts = {"layout.json": json.dumps(to_plain(one.layout), indent=2) + "\n"}
    texts["explanation.md"] = markdown(one.explanation)
    texts["report.html"] = _page(one)
    if one.layouts:
        texts["layouts.csv"] = _table(one.layouts)
    starts = {launcher: one.export(one.format, launcher) for launcher in ExportLauncher}
    for export in starts.values():
        texts |= {file.name: file.text for file in export.files}
    exports = [one.export(name, None) for name in ExportFormat if name.is_of_a_trainer]
    for export in exports:
        if not export.unsupported:
            texts |= {f"exports/{export.format}/{file}": text for file, text in files_of(export).items()}
    texts["README.md"] = "\n".join(_readme(one, starts, exports)) + "\n"
    for file, text in texts.items():
        write_text(folder / file, text, _OPTION)


def files_of(export: Export) -> dict[str, str]:
    """Return the texts of an export by file name: its files, and a file with its arguments."""
    texts = {Path(file.name).name: file.text for file in export.files}
    return texts | ({"arguments.txt": export.command_line} if export.command_line else {})


def save_of_job(
    folder: Path,
    request: JobRequest,
    layout: Layout,
    *,
    stack: Stack | str,
    format: ExportFormat | None = None,  # noqa: A002  # as commands and REST call it
    layouts: Sequence[PredictedLayout] = (),
    server: str | None = None,
) -> None:
    """Write the folder for a layout of a job that a request describes.

    Args:
        folder: The folder to write.
        request: A request with the job.
        layout: The layout to save.
        stack: Software that the layout is predicted for.
        format: Trainer that the scripts start; None: the usual one of the stack.
        layouts: Predicted layouts, the best first.
        server: URL of a running service; None: this process answers.

    Raises:
        InvalidInput: A file cannot be written, or the layout cannot run.
    """
    from autotuner.door import Autotuner
    from autotuner.remote import Remote
    from autotuner.report.explanation import explanation_report

    job = {field.name: getattr(request, field.name) for field in fields(JobRequest)}
    explained = ExplanationRequest(**job, layout=layout, stack=stack)
    wanted = ExportRequest(**job, layout=layout, format=ExportFormat.ARGUMENTS)
    with answering(server, opens_store=may_name_stored(explained)) as client:
        if isinstance(client, Remote):  # the exports are written here, because each would be a request
            found, wanted, door = client.explain_layout(explained), resolve(wanted, partial(_read, client)), Autotuner()
        else:
            found, door = client.explain(explained), client

        def export(name: ExportFormat, launcher: ExportLauncher | None) -> Export:
            return door.export(replace(wanted, format=name, launcher=launcher))

        saved = Saved(
            layout=layout,
            format=_started(format, stack if isinstance(stack, str) else stack.name),
            export=export,
            explanation=explanation_report(found),
            layouts=layouts,
        )
        save(folder, saved)


def _read(client: Remote, kind: type[Any], given: Any, path: str) -> Any:
    """Return a model or a cluster of a service by its name; a description is returned as it is."""
    del path
    if not isinstance(given, str):
        return given
    return client.read_model(given) if kind is TransformerSpec else client.read_cluster(given)


def save_of_trial(
    folder: Path,
    client: Remote,
    trial_id: str,
    *,
    format: ExportFormat | None = None,  # noqa: A002  # as commands and REST call it
) -> None:
    """Write the folder for the layout of a trial; ``format`` is as for ``save_of_job``.

    Raises:
        InvalidInput: A file cannot be written.
    """
    from autotuner.exports.formats import export
    from autotuner.report.explanation import explanation_report

    trial = client.read_trial(trial_id)
    job = client.read_sweep(trial.sweep_id).request.job
    saved = Saved(
        layout=trial.layout,
        format=_started(format, job.stack.name),
        export=partial(export, job, trial.layout),
        explanation=explanation_report(client.explain_trial(trial_id), ran=trial.measurement),
    )
    save(folder, saved)


def _started(wanted: ExportFormat | None, stack: str) -> ExportFormat:
    """Return the trainer that the scripts start: the wanted one, or the usual one of the software stack."""
    from autotuner.exports.shared.target import format_of

    return wanted if wanted is not None and wanted.is_of_a_trainer else format_of(stack)


def _page(one: Saved) -> str:
    from autotuner.api.dashboard.style import style_sheet
    from autotuner.report.file import html_file

    layout = documents.write(one.layout)
    return html_file(str(one.layout), [one.explanation], data=layout, style=style_sheet(), url=None)


def _table(layouts: Sequence[PredictedLayout]) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("rank", "layout", "step_time_s", "tokens_per_s", "mfu", "peak_bytes", "fits"))
    for rank, one in enumerate(layouts, 1):
        said = one.prediction
        writer.writerow((rank, one.layout, one.step_time_s, said.tokens_per_s, one.mfu, one.peak_bytes, said.fits))
    return text.getvalue()


def _readme(one: Saved, starts: dict[ExportLauncher, Export], exports: Sequence[Export]) -> Iterator[str]:
    """Yield the lines that say how to start the layout, what was predicted, and what each file is."""
    from autotuner.report.markdown import markdown

    chosen = next(iter(starts.values()))
    yield f"# {one.layout}"
    yield ""
    yield f"This folder starts {chosen.format} {chosen.version} with the layout `{one.layout}`. Where a command says"
    yield "ARGUMENTS OF YOUR SCRIPT, add data, schedule and checkpoints. The variable `TRAIN_SCRIPT` names your script."
    yield ""
    for launcher, export in starts.items():
        yield f"* **{launcher}**: {export.usage}"
    yield ""
    first = replace(one.explanation, sections=list(one.explanation.sections)[:1])
    yield from markdown(first).rstrip().split("\n")[2:]  # without the headline
    yield ""
    yield "| file | content |"
    yield "| --- | --- |"
    yield "| `layout.json` | the layout; every command reads it |"
    yield "| `explanation.md`, `report.html` | where time and memory go, and which change would help |"
    if one.layouts:
        yield "| `layouts.csv` | the best predicted layouts |"
    for export in exports:
        if not export.unsupported:
            yield f"| `exports/{export.format}/` | the layout for {export.format} {export.version}: {export.usage} |"
    if chosen.left_to_trainer:
        yield ""
        yield f"What {chosen.format} decides itself:"
        yield ""
        yield from (f"* {text}" for text in chosen.left_to_trainer)
    for export in exports:
        if export.unsupported:
            yield ""
            yield f"{export.format} cannot express this layout: {'; '.join(why.message for why in export.unsupported)}."
