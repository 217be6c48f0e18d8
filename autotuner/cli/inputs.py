"""What a user writes after --model and --cluster: a name, or the path of a JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os.path import isfile
from pathlib import Path
from typing import Any, TextIO

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.catalog.named import cluster_described, model_described
from autotuner.core import documents
from autotuner.core.cluster import Cluster
from autotuner.core.codec import to_plain, without_defaults
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.model import TransformerSpec
from autotuner.core.space import SearchSpace

MAX_CHARACTERS = 2_000_000
"""Of a file: a service takes no longer body."""


def read_model(text: str) -> TransformerSpec:
    """A model of the catalog, our own JSON, or a Hugging Face config.json."""
    if not _is_file(text):
        return load_model(text)
    document, path = _document(text, "model"), Path(text)
    if "model_type" in document:
        return model_described(document, "" if document.get("_name_or_path") else _name_of_config(path))
    return model_described(document, str(document.get("name", path.stem)) or path.stem)


def _name_of_config(path: Path) -> str:
    """Return the name that the path gives a ``config.json``: its own, or of the folder before it; else none."""
    return path.parent.name if path.stem == "config" else path.stem


def read_cluster(text: str) -> Cluster:
    """This machine (``local``), an accelerator and a count (``h100:64``), or our own JSON."""
    if text == "local":
        from autotuner.launch.this_machine import detect_cluster

        return detect_cluster()
    if not _is_file(text):
        return load_cluster(text)
    return cluster_described(_document(text, "cluster"), Path(text).stem)


def may_be_stored(cluster: str) -> bool:
    """Whether what is stored may describe the cluster, so that the question needs the database."""
    if cluster == "local" or cluster.startswith("profile:"):
        return True
    if not cluster or _is_file(cluster):
        return False
    try:
        load_cluster(cluster)
    except (InvalidInput, NotFound):
        return True
    return False


def read_space(text: str | None) -> dict[str, Any]:
    """Axes of the search space, from JSON on the command line or in a file; none when left out."""
    return _read(SearchSpace, text, "space")


def read_optimizer_space(text: str | None) -> dict[str, Any]:
    """What an optimizer study tries, from JSON on the command line or in a file; the default when left out."""
    from autotuner.core.study import OptimizerSpace

    return _read(OptimizerSpace, text, "space")


def read_trial_settings(text: str | None) -> dict[str, Any]:
    """Settings of every trial, from JSON on the command line or in a file; none when left out."""
    from autotuner.core.trial_spec import TrialSettings

    return _read(TrialSettings, text, "trial")


def read_fault_trace(text: str | None, num_steps: int | None) -> dict[str, Any] | None:
    """A fault trace, from the file that holds its lines, or from the lines; on a command line ``|`` may part them.

    Raises:
        InvalidInput: A line is no fault, with the line; the file cannot be read; or steps are given of no trace.
    """
    if text is None:
        if num_steps is not None:
            raise InvalidInput("--fault-steps", num_steps, "is the length of a trace that --fault-trace gives")
        return None
    from autotuner.core.fault_trace import FaultTrace

    lines = read_text(text, "fault_trace") if isfile(text) else text.replace("|", "\n")
    trace: dict[str, Any] = to_plain(FaultTrace.parse(lines, num_steps=num_steps))
    return trace


def read_measured(path: str | None, workload: Mapping[str, int]) -> dict[str, Any]:
    """The measured runs of a CSV or JSON file as a request carries them, beside its job; nothing without a file.

    Raises:
        InvalidInput: The file cannot be read, or a row names no layout or not one speed.
    """
    if path is None:
        return {}
    from autotuner.core import lines

    def described(kind: str, text: str, _: str) -> Any:
        return for_service(text, kind=kind)

    text = read_text(path, "measured", encoding="utf-8-sig")
    return {"measured": lines.read_measured(text, "measured", workload, described)}


def read_document(path: str, field: str) -> dict[str, Any]:
    """The JSON object of a file, as it is.

    Raises:
        InvalidInput: There is no such file, or none in it.
    """
    return _document(path, field)


def read_text(path: str, field: str, *, encoding: str = "utf-8", errors: str = "strict") -> str:
    """Return the text of a file.

    Raises:
        InvalidInput: There is no such file, it is no text, or it is longer than ``MAX_CHARACTERS``.
    """
    try:
        with Path(path).open(encoding=encoding, errors=errors) as file:
            return read_open(file, path, field)
    except OSError as error:
        raise InvalidInput(field, path, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(field, path, f"cannot be read: {error}") from error


def read_open(file: TextIO, path: str, field: str) -> str:
    """Return the text of an open file, such as standard input; errors as of ``read_text``."""
    text = file.read(MAX_CHARACTERS + 1)
    if len(text) > MAX_CHARACTERS:
        raise InvalidInput(field, path, f"must have {MAX_CHARACTERS:,} characters or fewer")
    return text


def job_body(
    model: str,
    cluster: str,
    global_batch: int,
    seq_len: int,
    link_health: str | None = None,
    lengths: str | None = None,
) -> dict[str, Any]:
    """The job as the service takes it."""
    workload: dict[str, Any] = {"seq_len": seq_len, "global_batch_size": global_batch}
    body = {
        "model": for_service(model, kind="model"),
        "cluster": for_service(cluster, kind="cluster"),
        "workload": workload if lengths is None else workload | {"lengths": read_sequence_lengths(lengths)},
    }
    return body if link_health is None else body | {"link_health": read_link_health(link_health)}


def read_link_health(text: str) -> list[dict[str, Any]]:
    """Links that are not healthy, from the file that holds their lines or JSON, or from the text itself.

    Raises:
        InvalidInput: A line says no link, with the line, or the file cannot be read.
    """
    from autotuner.core.lines import read_links

    said = read_text(text, "link_health") if isfile(text) else text
    return [without_defaults(link) for link in read_links(said)]


def read_sequence_lengths(text: str) -> dict[str, Any]:
    """How long sequences are, from the file that says or counts it, or from the text itself.

    Raises:
        InvalidInput: A part says no length, with that part, or the file cannot be read.
    """
    from autotuner.core.lines import read_lengths

    lengths: dict[str, Any] = to_plain(read_lengths(read_text(text, "lengths") if isfile(text) else text))
    return lengths


def the_cluster(cluster: str | None, for_cluster: str | None) -> str:
    """The cluster of a sweep's job, which has two spellings.

    Raises:
        InvalidInput: Both are given, or none is.
    """
    given = [text for text in (cluster, for_cluster) if text is not None]
    if len(given) != 1:
        rule = "is the cluster of the job, as --cluster is: one of both must be given"
        raise InvalidInput("--for", for_cluster or "nothing", rule, cluster)
    return given[0]


def for_service(text: str, *, kind: str) -> Any:
    """A name for the service to resolve, or the object that a file describes."""
    if not _is_file(text):
        return text
    return to_plain(read_model(text) if kind == "model" else read_cluster(text))


def cluster_name(text: str) -> str:
    """Return the name of a cluster for people: that of its file or of the catalog, or else the text itself."""
    if _is_file(text):
        return read_cluster(text).name
    try:
        return load_cluster(text).name
    except (InvalidInput, NotFound):
        return text


def _read(kind: type[Any], text: str | None, field: str) -> dict[str, Any]:
    if text is None:
        return {}
    document = _document(text, field) if _is_file(text) else _parsed(text, field)
    documents.read(kind, document, field)
    return document


def _is_file(text: str) -> bool:
    return text.endswith(".json") or isfile(text)  # which a name of any length may be asked


def _document(path: str, field: str) -> dict[str, Any]:
    return _parsed(read_text(path, field), field)


def _parsed(text: str, field: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(field, text[:60], f"must be JSON ({error})") from error
    if not isinstance(document, dict):
        raise InvalidInput(field, text[:60], "must be a JSON object")
    return document
