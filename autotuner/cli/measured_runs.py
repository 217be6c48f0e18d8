"""What a user writes after --measured: a CSV or JSON file of layouts that were run and how fast they were."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from io import StringIO
from typing import Any

from autotuner.cli.inputs import for_service, read_text
from autotuner.cli.layout_text import read_layout
from autotuner.core.errors import InvalidInput

_SPEEDS = ("step_time_s", "tokens_per_s")
_WORKLOAD = {"seq_len": "seq_len", "global_batch": "global_batch_size"}
_COLUMNS = ("layout", *_SPEEDS, "model", "cluster", *_WORKLOAD)
"""The layout, one of both speeds, and what was not as the command says of its own job."""


def read_measured(path: str | None, workload: Mapping[str, int]) -> dict[str, Any]:
    """The runs of a file as a request carries them, beside its job; nothing without a file.

    Args:
        path: A CSV file with a header, or a JSON list of objects with the same names.
        workload: The job's, for runs that name no other.

    Raises:
        InvalidInput: The file cannot be read, or a row names no layout or not one speed.
    """
    if path is None:
        return {}
    text = read_text(path, "measured", encoding="utf-8-sig")
    rows = _json(text, path) if path.endswith(".json") else list(csv.DictReader(StringIO(text, newline="")))
    return {"measured": [_run(row, f"measured.{number}", workload) for number, row in enumerate(rows)]}


def _json(text: str, path: str) -> list[dict[str, Any]]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("measured", path, f"must be JSON ({error})") from error
    if not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
        raise InvalidInput("measured", path, "must be a JSON list of objects")
    return rows


def _run(row: Mapping[str, Any], path: str, workload: Mapping[str, int]) -> dict[str, Any]:
    given = {name: value for name, value in row.items() if value not in (None, "")}
    if given.pop("is_simulated", False) not in (False, "false", "False", "0"):
        raise InvalidInput(f"{path}.is_simulated", True, "must be false: what nobody measured teaches nothing")
    if unknown := [name for name in given if name not in _COLUMNS]:
        raise InvalidInput(path, unknown[0], f"is no column; there are {', '.join(_COLUMNS)}")
    if "layout" not in given or sum(name in given for name in _SPEEDS) != 1:
        raise InvalidInput(path, ", ".join(given), f"must have a layout and one of {' and '.join(_SPEEDS)}")
    layout = given["layout"]
    run: dict[str, Any] = {"layout": layout if isinstance(layout, dict) else read_layout(_text(given, "layout", path))}
    run |= {name: _number(given, name, path) for name in _SPEEDS if name in given}
    run |= {kind: _described(given, kind, path) for kind in ("model", "cluster") if kind in given}
    if own := {field: int(_number(given, name, path)) for name, field in _WORKLOAD.items() if name in given}:
        run["workload"] = {**workload, **own}
    return run


def _number(row: Mapping[str, Any], name: str, path: str) -> float:
    try:
        if math.isfinite(value := float(row[name])):
            return value
    except (TypeError, ValueError, OverflowError):
        pass
    raise InvalidInput(f"{path}.{name}", row[name], "must be a number")


def _described(row: Mapping[str, Any], kind: str, path: str) -> Any:
    """A name or a file for the service to resolve, or the object itself."""
    given = row[kind]
    return given if isinstance(given, dict) else for_service(_text(row, kind, path), kind=kind)


def _text(row: Mapping[str, Any], name: str, path: str) -> str:
    if not isinstance(row[name], str):
        raise InvalidInput(f"{path}.{name}", row[name], "must be text or an object")
    return str(row[name])
