"""CurrentJob: what runs today, as the options of commands and as a request."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autotuner.catalog.models import load_model
from autotuner.cli.inputs import job_body
from autotuner.core import documents
from autotuner.core.codec import to_plain
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.model import TransformerSpec
from autotuner.core.requests import PredictionRequest
from autotuner.export.target import Imported
from autotuner.report.report import Lines, Report, Section
from autotuner.search.predictions import PredictionTable

_SHOWN = 3
"""Rows of the comparison; ``predict`` prints as many as one wants."""

_NOT_SAID = "is required, since the configuration does not say it"


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentJob:
    """The job of a configuration that was read, as far as it or the caller says it."""

    model: str | None
    """What ``--model`` takes: a name or a file; None where the model has neither."""
    cluster: str | None
    global_batch: int | None
    seq_len: int | None
    stack: str
    """Of the caller, or the software nearest to the trainer."""

    def options(self) -> str:
        """The options that name the job; what nobody said stands in capital letters."""
        return " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in self._named())

    def _named(self) -> Iterator[tuple[str, object]]:
        yield "model", self.model or "MODEL"
        yield "cluster", self.cluster or "CLUSTER"
        yield "global-batch", self.global_batch or "SEQUENCES"
        yield "seq-len", self.seq_len or "TOKENS"
        if self.stack != "torch":  # the default
            yield "stack", self.stack

    def request(self, read: Imported) -> PredictionRequest:
        """Return the request for the best that the trainer can be told, beside what runs today.

        Raises:
            InvalidInput: Neither the configuration nor the caller says a part of it.
        """
        if self.cluster is None:
            raise InvalidInput("--cluster", None, "is required")
        if self.seq_len is None:
            raise InvalidInput("--seq-len", None, _NOT_SAID)
        if self.global_batch is None:
            raise InvalidInput("--global-batch", None, _NOT_SAID)
        if self.model is None and read.model is None:
            raise InvalidInput("--model", None, f"{_NOT_SAID}; a name, or its config.json")
        body = job_body(self.model or "", self.cluster, self.global_batch, self.seq_len)
        wanted = {"stack": self.stack, "current": to_plain(read.layout), "format": read.format, "limit": _SHOWN}
        model = {} if self.model else {"model": to_plain(read.model)}
        return documents.read(PredictionRequest, body | model | wanted)

    def next_steps(self, read: Imported, compared: PredictionTable | None) -> Report:
        """Return the commands that go on from here.

        Args:
            read: The configuration.
            compared: What runs today beside the best, where that was asked.
        """
        commands = Lines(items=tuple(self._commands(read, compared)))
        return Report(headline="Next", sections=(Section(blocks=(commands,)),))

    def _commands(self, read: Imported, compared: PredictionTable | None) -> Iterator[str]:
        options, today = self.options(), shlex.quote(read.label)
        if read.model is not None and self.model is None:
            yield "repeat this command with --save-model model.json, and write model.json in the place of MODEL"
        if compared is None:
            yield f"autotuner predict {options} --current {today} --format {read.format}"
        yield f"autotuner explain {options} --layout {today}"
        if compared is not None and compared.items:
            best = shlex.quote(compared.items[0].label)
            yield f"autotuner export {best} {options} --format {read.format}"


def current_job(
    read: Imported,
    *,
    model: str | None,
    cluster: str | None,
    global_batch: int | None,
    seq_len: int | None,
    stack: str | None,
) -> CurrentJob:
    """Return the job of a configuration; what the caller names replaces what it says."""
    return CurrentJob(
        model=model or _catalog_name(read.model),
        cluster=cluster,
        global_batch=global_batch or read.global_batch_size,
        seq_len=seq_len or read.seq_len,
        stack=stack or read.stack,
    )


def save(read: Imported, path: Path) -> None:
    """Write the model of a configuration into a file.

    Raises:
        InvalidInput: The configuration has none, or the file cannot be written.
    """
    if read.model is None:
        raise InvalidInput("--save-model", str(path), "the configuration has no shapes of a model")
    if path.suffix != ".json":
        raise InvalidInput("--save-model", str(path), "must end in .json", f"{path}.json")
    try:
        path.write_text(json.dumps(to_plain(read.model), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidInput("--save-model", str(path), f"cannot be written: {error.strerror}") from error


def _catalog_name(model: TransformerSpec | None) -> str | None:
    """Return the model's name, where the catalog has the same under it."""
    if model is None:
        return None
    try:
        known = load_model(model.name)
    except NotFound:
        return None
    return known.name if known == model else None
