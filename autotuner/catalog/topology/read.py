"""Reads whatever describes a topology: the kind of file is seen by its look."""

from __future__ import annotations

from autotuner.catalog.topology.documents import read_json
from autotuner.catalog.topology.nccl_xml import read_nccl_xml
from autotuner.catalog.topology.nvidia_smi import is_nvidia_smi, read_nvidia_smi
from autotuner.catalog.topology.slurm_conf import is_slurm_conf, read_slurm_conf
from autotuner.catalog.topology.slurm_yaml import is_slurm_yaml, read_slurm_yaml
from autotuner.catalog.topology.topology import Topology
from autotuner.core.errors import InvalidInput

__all__ = ["MAX_CHARACTERS", "read_topology"]

MAX_CHARACTERS = 2_000_000
"""Of one file; a topology.conf of 10,000 nodes that are named one by one has a tenth of that."""


def read_topology(text: str) -> Topology:
    """What the text of a file says of a network or a node.

    Raises:
        InvalidInput: It is none of the files that are known, or not whole; with the line.
    """
    if len(text) > MAX_CHARACTERS:
        raise InvalidInput("topology", text[:60], f"must have {MAX_CHARACTERS:,} characters at most")
    text = text.lstrip("\ufeff")
    begins = text.lstrip()[:1]
    if begins == "<":
        return read_nccl_xml(text)
    if begins == "{":
        return read_json(text)
    if is_nvidia_smi(text):
        return read_nvidia_smi(text)
    if is_slurm_conf(text):
        return read_slurm_conf(text)
    if is_slurm_yaml(text):
        return read_slurm_yaml(text)
    rule = "must be what nvidia-smi topo -m prints, a NCCL_TOPO_FILE, Slurm's topology.conf or topology.yaml, or JSON"
    raise InvalidInput("line 1", text.strip()[:60], rule)
