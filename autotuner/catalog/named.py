"""Models and clusters by description: all fields, or names of the catalog with a few fields changed.

``base`` names the catalog entry that an object starts from; fields that the object leaves out are taken from it. A
cluster's accelerator and links may be given by name. Both the command line and the service read descriptions with this
module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from autotuner.catalog.hardware import load_accelerator, load_cluster, load_link, node_size, region
from autotuner.catalog.models import load_model
from autotuner.catalog.networks import load_preset
from autotuner.catalog.software import load_stack
from autotuner.core import documents
from autotuner.core.cluster import Cluster, Tariff
from autotuner.core.codec import to_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.model import TransformerSpec
from autotuner.core.stack import Stack

T = TypeVar("T")

_MOST_NODES = 10**6
"""Maximum number of nodes. A cluster with more nodes is refused when it is made."""

BASE = "base"
"""Key with the name of the catalog entry that an object starts from. No model, cluster or part has a field of this
name."""

_PARTS_BY_NAME: Mapping[str, Callable[[str], Any]] = {
    "accelerator": load_accelerator,
    "intra_node_link": load_link,
    "inter_node_link": load_link,
}
"""Parts of a cluster that a name describes completely, each with the function that loads the part."""

_NAMED_PARTS = (*_PARTS_BY_NAME, "network", "tariff")
"""Fields of a cluster that may hold a name of the catalog instead of an object."""

_CONFIG = {
    "type": "object",
    "description": "The `config.json` that a model is published with.",
    "properties": {"model_type": {"type": "string", "pattern": "^[^\\x00]*$"}},
    "required": ["model_type"],
}


_LOADERS: Mapping[type[Any], Callable[[str], Any]] = {
    TransformerSpec: load_model,
    Cluster: load_cluster,
    Stack: load_stack,
}


def load(cls: type[T], name: str) -> T:
    """Return the model, cluster or software stack of the catalog that has this name.

    Args:
        cls: Type to return: ``TransformerSpec``, ``Cluster`` or ``Stack``.
        name: Name in the catalog; for a cluster a short form such as ``h100:64``.

    Raises:
        InvalidInput: The short form of a cluster is not valid.
        NotFound: Nothing has this name. The error suggests the most similar name.
    """
    found: T = _LOADERS[cls](name)
    return found


def model_described(document: object, name: str = "") -> TransformerSpec:
    """Return the model that a JSON object describes: all its fields, a ``base`` with changes, or a ``config.json``.

    Args:
        document: The parsed JSON.
        name: Name of the model if the document does not give one.

    Raises:
        InvalidInput: A field is unknown, missing or has a wrong value. The error gives the field's path.
        NotFound: The catalog has no model with the name in ``base``. The error suggests the most similar name.
    """
    return documents.read(TransformerSpec, whole_model(document, name), "model")


def cluster_described(document: object, name: str = "") -> Cluster:
    """Return the cluster that a JSON object describes: all its fields, or names from the catalog with some changes.

    Args:
        document: The parsed JSON.
        name: Name of the cluster if the document does not give one.

    Raises:
        InvalidInput: A field is unknown, missing or has a wrong value. The error gives the field's path.
        NotFound: The catalog lacks one of the names. The error suggests the most similar name.
    """
    return documents.read(Cluster, whole_cluster(document, name), "cluster")


def whole_model(document: object, name: str = "") -> Any:
    """Return a model's JSON description with all fields of its ``base`` or ``config.json`` filled in.

    The result is not yet checked. A description with neither ``base`` nor ``config.json`` is returned as it is, except
    that it gets the name.

    Args:
        document: The parsed JSON.
        name: Name of the model if the document does not give one; empty: no name is added.
    """
    if not isinstance(document, Mapping):
        return document
    if "model_type" in document:
        from autotuner.catalog.huggingface import from_config  # noqa: PLC0415  # most models are known by a name

        return to_plain(from_config(document, name or _name_of(document)))
    if BASE in document:
        return _from_base({"name": name or _changed(document), **document}, load_model)
    return {"name": name, **document} if name else document


def whole_cluster(document: object, name: str = "") -> Any:
    """Return a cluster's JSON description in which all names from the catalog are replaced by full fields.

    The result is not yet checked. If the accelerator is given by name, missing fields get the usual nodes, links and
    price of that accelerator. A description without names from the catalog is returned as it is.

    Args:
        document: The parsed JSON.
        name: Name of the cluster if the document does not give one; empty: no name is added.
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
        whole = _overlaid(to_plain(_usual_cluster(accelerator, document)), whole)
    return whole | _network_parts(written["network"], whole, document) if "network" in written else whole


def tariff_fields(tariff: object) -> Any:
    """Return the JSON fields of a tariff, with the values of a region if the tariff names one.

    Args:
        tariff: Name of a region, an object with a ``base`` and changes, or an object with all fields.

    Raises:
        InvalidInput: ``base`` is not a string.
        NotFound: No region has this name. The error suggests the most similar name.
    """
    return _whole_part(tariff, lambda name: region(name).tariff_fields)


def _network_parts(network: Any, cluster: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the network for the cluster's number of nodes, and its NVLink domain.

    A domain that the document states is kept.
    """
    name = _name_in(network)
    if name is None:
        return {"network": _overlaid(cluster.get("network"), network)}
    preset = load_preset(name)
    joining = preset.joining(_size(cluster.get("num_nodes")) or 1)
    changes = {key: value for key, value in network.items() if key != BASE} if isinstance(network, Mapping) else {}
    parts = {"network": _overlaid(to_plain(joining), {"name": _changed(network), **changes} if changes else {})}
    is_stated = preset.nvlink_domain is None or "nvlink_domain" in document
    return parts if is_stated else parts | {"nvlink_domain": preset.nvlink_domain}


def _usual_cluster(accelerator: str, document: Mapping[str, Any]) -> Cluster:
    """Return a cluster of the catalog's usual nodes with this accelerator.

    It has as many nodes as the document states, or one node if the document states no number.
    """
    num_nodes, per_node = (_size(document.get(field)) for field in ("num_nodes", "accelerators_per_node"))
    usual = node_size(load_accelerator(accelerator)) or 1
    return load_cluster(f"{accelerator}:{num_nodes or 1}x{per_node or usual}")


def _size(number: object) -> int | None:
    return number if isinstance(number, int) and 0 < number < _MOST_NODES else None


def _from_base(document: Mapping[str, Any], load: Callable[[str], Any]) -> Any:
    """Return the fields of the document's base, replaced by the fields that the document has itself."""
    base = document[BASE]
    if not isinstance(base, str):
        raise InvalidInput(BASE, base, "must be the name of a model, cluster or other entry of the catalog")
    return _overlaid(to_plain(load(base)), {field: value for field, value in document.items() if field != BASE})


def _changed(document: Mapping[str, Any]) -> str:
    """Return a name for an object that has none: the name of its base, marked as changed."""
    return f"{document[BASE]} (changed)"


def _whole_part(part: object, load: Callable[[str], Any]) -> Any:
    if isinstance(part, str):
        return to_plain(load(part))
    return _from_base(part, load) if isinstance(part, Mapping) and BASE in part else part


def _overlaid(below: Any, above: Any) -> Any:
    """Return one document with another laid over it. Objects that both contain are merged field by field."""
    if not (isinstance(below, Mapping) and isinstance(above, Mapping)):
        return above
    return {**below, **{field: _overlaid(below.get(field), value) for field, value in above.items()}}


def _name_in(part: object) -> str | None:
    """Return the catalog name that a part is, or that its ``base`` has; None if it has neither."""
    name = part.get(BASE) if isinstance(part, Mapping) else part
    return name if isinstance(name, str) else None


def _name_of(config: Mapping[str, Any]) -> str:
    """Return a name for the model of a ``config.json`` whose folder, the usual name, is not known."""
    name = config.get("_name_or_path") or config["model_type"]
    return str(name).rstrip("/").rpartition("/")[-1][:100] or "config"


AS_CLUSTERS_ARE_WRITTEN = documents.Described(whole_cluster, BASE, _NAMED_PARTS)
"""Forms in which a cluster may be written: with all fields, or with names of accelerators and links."""

documents.write_in_short(TransformerSpec, documents.Described(whole_model, BASE, other=_CONFIG))
documents.write_in_short(Cluster, AS_CLUSTERS_ARE_WRITTEN)
documents.write_in_short(Tariff, documents.Described(tariff_fields, BASE))
