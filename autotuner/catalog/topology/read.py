"""Reads any topology file, whose kind is recognised by its content, and our own JSON."""

from __future__ import annotations

import json
from dataclasses import fields

from autotuner.catalog.topology.nccl_xml import read_nccl_xml
from autotuner.catalog.topology.nvidia_smi import is_nvidia_smi, read_nvidia_smi
from autotuner.catalog.topology.slurm import is_slurm_conf, is_slurm_yaml, read_slurm_conf, read_slurm_yaml
from autotuner.catalog.topology.topology import FileKind, Topology
from autotuner.core import documents
from autotuner.core.errors import InvalidInput
from autotuner.core.network import Network, Wiring

MAX_CHARACTERS = 2_000_000
"""Maximum number of characters in one file. A topology.conf that names 10,000 nodes one by one has a tenth of that."""

_PARTS = {"network": Network, "wiring": Wiring}


def read_topology(text: str) -> Topology:
    """Return the network or the node that a topology file describes; the kind of file is recognised by its content.

    Args:
        text: Output of ``nvidia-smi topo -m``, a topology file of NCCL, Slurm's ``topology.conf`` or ``topology.yaml``,
            or JSON with the fields of a network or of a wiring.

    Raises:
        InvalidInput: The kind of file is unknown, or the file is incomplete. The error names the line.
    """
    if len(text) > MAX_CHARACTERS:
        rule = f"has {len(text):,} characters, but at most {MAX_CHARACTERS:,} can be read"
        raise InvalidInput("topology", text[:60], rule)
    text = text.lstrip("\ufeff")
    begins = text.lstrip()[:1]
    if begins == "<":
        return read_nccl_xml(text)
    if begins == "{":
        return _read_json(text)
    if is_nvidia_smi(text):
        return read_nvidia_smi(text)
    if is_slurm_conf(text):
        return read_slurm_conf(text)
    if is_slurm_yaml(text):
        return read_slurm_yaml(text)
    rule = (
        "must be the output of nvidia-smi topo -m, a file of NCCL_TOPO_FILE, Slurm's topology.conf "
        "or topology.yaml, or JSON"
    )
    raise InvalidInput("line 1", text.strip()[:60], rule)


def _read_json(text: str) -> Topology:
    """Read our own JSON: ``{"network": {...}, "wiring": {...}}``, or only the fields of one of these."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        lines = text.splitlines()[error.lineno - 1 : error.lineno]
        raise InvalidInput(f"line {error.lineno}", "".join(lines)[:60], f"must be JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput("line 1", text[:60], "must be JSON with fewer levels of nested brackets") from error
    if not isinstance(document, dict):
        raise InvalidInput("line 1", text[:60], 'must be a JSON object, for example {"network": {"name": "ours"}}')
    num_fields = {part: len({field.name for field in fields(kind)} & document.keys()) for part, kind in _PARTS.items()}
    parts = document if _PARTS.keys() & document.keys() else {max(_PARTS, key=num_fields.__getitem__): document}
    for name in parts:
        if name not in _PARTS:
            raise InvalidInput(name, parts[name], "is not a known field; the fields are network and wiring")
    network = documents.read(Network, parts["network"], "network") if parts.get("network") is not None else None
    wiring = documents.read(Wiring, parts["wiring"], "wiring") if parts.get("wiring") is not None else None
    return Topology(kind=FileKind.JSON, network=network, wiring=wiring)
