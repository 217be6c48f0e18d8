"""Models and clusters as people write them down: whole, or by names of the catalog with a few fields changed.

``base`` names what an object starts from; a field that it does not say is as there. Where a cluster's accelerator or
link stands, its name alone will do. Command line and service both read descriptions here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotuner.catalog.huggingface import from_config
from autotuner.catalog.load import load_accelerator, load_cluster, load_link, load_model, node_size
from autotuner.catalog.tariffs import region
from autotuner.catalog.topology.presets import load_preset
from autotuner.core.cluster import Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.model import TransformerSpec
from autotuner.core.wire import from_dict, to_dict

__all__ = [
    "BASE",
    "NAMED_PARTS",
    "cluster_described",
    "model_described",
    "tariff_fields",
    "whole_cluster",
    "whole_model",
]

_MOST_NODES = 10**6
"""A description that says more is refused where it is judged."""

BASE = "base"
"""The field that names what an object starts from; no field of a model, a cluster or a part of one."""

_PARTS_BY_NAME: Mapping[str, Callable[[str], Any]] = {
    "accelerator": load_accelerator,
    "intra_node_link": load_link,
    "inter_node_link": load_link,
}
"""Fields of a cluster whose name says all of them, whatever else the cluster is."""

NAMED_PARTS = (*_PARTS_BY_NAME, "network", "tariff")
"""Fields of a cluster that a name of the catalog may stand for."""


def model_described(document: object, name: str = "") -> TransformerSpec:
    """The model that a JSON object describes: our own fields, a ``base`` with changes, or a ``config.json``.

    Args:
        document: What was parsed.
        name: Of a model that the document gives none.

    Raises:
        InvalidInput: A field is unknown, missing or does not fit; with its path.
        NotFound: The catalog has no model of the name of ``base``; with the nearest.
    """
    return from_dict(TransformerSpec, whole_model(document, name), "model")


def cluster_described(document: object, name: str = "") -> Cluster:
    """The cluster that a JSON object describes: all its fields, or names of the catalog with changes.

    Raises:
        InvalidInput: A field is unknown, missing or does not fit; with its path.
        NotFound: The catalog does not have what is named; with the nearest.
    """
    return from_dict(Cluster, whole_cluster(document, name), "cluster")


def whole_model(document: object, name: str = "") -> Any:
    """The description with every field that its base or its ``config.json`` says; else as it is, and not judged yet."""
    if not isinstance(document, Mapping):
        return document
    if "model_type" in document:
        return to_dict(from_config(document, name or _name_of(document)))
    if BASE in document:
        return _from_base({"name": name or _changed(document), **document}, load_model)
    return {"name": name, **document} if name else document


def whole_cluster(document: object, name: str = "") -> Any:
    """The description with every field that names of the catalog say; else as it is, and not judged yet.

    A cluster of a named accelerator has what is usual around it: nodes of the usual size, links, price.
    """
    if not isinstance(document, Mapping):
        return document
    accelerator = _name_in(document.get("accelerator"))
    parts = {part: _whole_part(document[part], load) for part, load in _PARTS_BY_NAME.items() if part in document}
    parts |= {"tariff": tariff_fields(document["tariff"])} if "tariff" in document else {}
    written = {"name": name, **document, **parts} if name else {**document, **parts}
    whole = {field: value for field, value in written.items() if field != "network"}
    if BASE in document:
        whole = _from_base({"name": _changed(document), **whole}, load_cluster)
    elif accelerator is not None:
        whole = _overlaid(to_dict(_usual_cluster(accelerator, document)), whole)
    return whole | _network_parts(written["network"], whole, document) if "network" in written else whole


def tariff_fields(said: object) -> Any:
    """Fields of a tariff, of which one that is named or starts from a ``base`` has those of its region.

    Raises:
        InvalidInput: The base is no name.
        NotFound: There is no region of that name; with the nearest.
    """
    return _whole_part(said, lambda name: region(name).tariff_fields)


def _network_parts(network: Any, cluster: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """What a network says of a cluster: itself, fitted to the number of nodes, and what NVLink joins, unless told."""
    name = _name_in(network)
    if name is None:
        below = cluster.get("network")
        both_are_objects = isinstance(below, Mapping) and isinstance(network, Mapping)
        return {"network": _overlaid(below or {}, network) if both_are_objects else network}
    preset, num_nodes = load_preset(name), cluster.get("num_nodes")
    joining = preset.joining(num_nodes if isinstance(num_nodes, int) and 0 < num_nodes < _MOST_NODES else 1)
    changes = {key: value for key, value in network.items() if key != BASE} if isinstance(network, Mapping) else {}
    said = {"network": _overlaid(to_dict(joining), {"name": _changed(network), **changes} if changes else {})}
    is_told = preset.nvlink_domain is None or "nvlink_domain" in document
    return said if is_told else said | {"nvlink_domain": preset.nvlink_domain}


def _usual_cluster(accelerator: str, document: Mapping[str, Any]) -> Cluster:
    """So many nodes of the accelerator as the catalog describes them; one where nothing is said."""
    sizes = {field: document.get(field) for field in ("num_nodes", "accelerators_per_node")}
    num_nodes, per_node = (
        size if isinstance(size, int) and 0 < size < _MOST_NODES else None for size in sizes.values()
    )
    usual = node_size(load_accelerator(accelerator)) or 1
    return load_cluster(f"{accelerator}:{num_nodes or 1}x{per_node or usual}")


def _from_base(document: Mapping[str, Any], load: Callable[[str], Any]) -> dict[str, Any]:
    """What the base says with what the document says over it."""
    base = document[BASE]
    if not isinstance(base, str):
        raise InvalidInput(BASE, base, "must be a name of the catalog")
    return _overlaid(to_dict(load(base)), {field: value for field, value in document.items() if field != BASE})


def _changed(document: Mapping[str, Any]) -> str:
    """The name of what has none of its own: it is not what it starts from."""
    return f"{document[BASE]} (changed)"


def _whole_part(part: object, load: Callable[[str], Any]) -> Any:
    if isinstance(part, str):
        return to_dict(load(part))
    return _from_base(part, load) if isinstance(part, Mapping) and BASE in part else part


def _overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of one document over those of another; of an object in both, field by field."""
    merged = dict(below)
    for field, value in above.items():
        under = below.get(field)
        both_are_objects = isinstance(under, Mapping) and isinstance(value, Mapping)
        merged[field] = _overlaid(under or {}, value) if both_are_objects else value
    return merged


def _name_in(part: object) -> str | None:
    """The name of the catalog that a part is, or starts from."""
    name = part.get(BASE) if isinstance(part, Mapping) else part
    return name if isinstance(name, str) else None


def _name_of(config: Mapping[str, Any]) -> str:
    """What a ``config.json`` without a folder is called."""
    name = config.get("_name_or_path") or config["model_type"]
    return str(name).rstrip("/").rpartition("/")[-1][:100] or "config"
