"""Objectives, prices and tariffs as a command line says them."""

from __future__ import annotations

import json
from os.path import isfile
from typing import Any

from autotuner.catalog.named import tariff_fields
from autotuner.cli.inputs import read_document
from autotuner.core import documents
from autotuner.core.cluster import Tariff
from autotuner.core.codec import without_defaults
from autotuner.core.errors import InvalidInput
from autotuner.core.objective import Metric, Objective, read_metrics, read_profile


def objective_body(metric: str, profile: str | None = None, front: str = "") -> dict[str, Any]:
    """What a sweep or a table is compared by, as the service takes it.

    Args:
        metric: Name of a rate.
        profile: ``mfu=2,tokens_per_dollar=1``: metrics with their weights; 1 where none stands.
        front: ``mfu,simplicity``: metrics that no trade is made between.

    Raises:
        InvalidInput: There is no such metric, with the nearest; or a weight is no number above 0.
    """
    objective = Objective(
        metric=Metric(metric),
        profile=read_profile(profile or "", "--profile"),
        front=read_metrics(front, "--front"),
    )
    said: dict[str, Any] = without_defaults(objective)
    return {"metric": metric} | said


def price_body(price: float | None, tariff: str | None) -> dict[str, Any]:
    """What a request says of prices, as the service takes it; nothing where nothing is said.

    Args:
        price: US dollars per accelerator and hour.
        tariff: A region of the catalog, or fields of a tariff as JSON or in a file, among which ``base`` may name one.

    Raises:
        InvalidInput: The JSON is no tariff; with the field.
        NotFound: There is no such region; with the nearest.
    """
    body: dict[str, Any] = {} if price is None else {"price_per_accelerator_hour": price}
    if tariff is None:
        return body
    said = tariff_fields(_said(tariff))
    documents.read(Tariff, said, "tariff")
    return body | {"tariff": said}


def _said(tariff: str) -> Any:
    if isfile(tariff):
        return read_document(tariff, "tariff")
    return _parsed(tariff) if tariff.lstrip().startswith("{") else tariff.strip().lower()


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("tariff", text[:60], f"must be a region or JSON ({error})", "france") from error
