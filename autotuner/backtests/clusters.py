"""The clusters that tables were measured on, by the sources that describe them."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from autotuner.backtests.cells import Row, UnusableRow, count, maybe_count, text
from autotuner.catalog.hardware import accelerator_facts, load_accelerator, load_cluster, load_link
from autotuner.core.cluster import Cluster
from autotuner.core.codec import from_plain
from autotuner.core.errors import NotFound
from autotuner.core.job import Calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The recomputation that some software chooses by default for certain models, devices and precisions."""

    models: tuple[str, ...]
    """Models by their names in the catalog."""
    recompute: str
    """Recomputation in the table's words."""
    devices: tuple[str, ...] = ()
    """Beginnings of the accelerators' names in the catalog; empty: all."""
    precision: str = ""
    """A pattern of the table's word; empty: any."""
    sharding: str = ""
    """Shard level in the table's words."""

    def is_for(self, model: str, device: str, row: Row) -> bool:
        """Return True if the recipe applies to a run of this model on this device.

        The row tells the precision and the sharding of the run, which a recipe may demand as well.
        """
        on_device = not self.devices or device.startswith(self.devices)
        in_format = re.search(self.precision, text(row, "precision").lower())
        sharded = re.search(self.sharding, text(row, "zero_or_fsdp").lower())
        return model in self.models and on_device and in_format is not None and sharded is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A description of where rows come from: it tells what their blank cells mean.

    The defaults are for a source that nobody has described.
    """

    match: tuple[str, ...] = ()
    """Beginnings of the ``source`` column; of software: patterns of its name."""
    where: dict[str, str] = field(default_factory=dict)
    """Patterns that other columns must hold too, by the column's name; of software alone."""
    until: str | None = None
    """Year and month of the last tables that it is about; None: up to today."""
    stack: str = "typical"
    """Software, by its name in the catalog."""
    sharding: str = "zero1"
    """Meaning of a blank shard level, in the table's words."""
    attention: str = "flash"
    """Meaning of a blank kernel, in the table's words."""
    flash: str = "flash"
    """FlashAttention version that the bare word means."""
    recompute: str = "none"
    """Meaning of blank recomputation, in the table's words, unless a recipe says otherwise."""
    recipes: tuple[Recipe, ...] = ()
    """Recipes of certain models; the first that fits counts."""
    fp8_recipe: str = "tensorwise"
    """Scaling recipe of fp8 that the table does not describe, by our label."""
    context_exchange: str = "ring"
    """Exchange of attention between ranks that split the sequence, by our label."""
    sequence_parallel: bool = True
    """Meaning of a blank cell for sequence parallelism."""
    compiled: bool = False
    """Meaning of a blank cell for compiled layers."""
    names_fused_norm: bool = False
    """The kernel column says where norms are fused, so that elsewhere they are not; else all are."""
    capacity_factor: float | None = None
    """Capacity factor to which experts are padded if the row has none; None: no padding."""
    vocab: int | None = None
    """Size of the vocabulary; None: that of the model's family."""
    micro_batches: dict[str, int] = field(default_factory=dict)
    """Meaning of a blank micro-batch size, by a word of the model's name; 1 for all other models."""
    inter_node_link: str | None = None
    """Network link of one accelerator, by its name in the catalog; None: the usual link."""
    oversubscription: float = 2.0
    """Factor by which the cluster's network is thinner than that; the default is the median of those that were fitted
    to published tables."""
    congestion: float | None = None
    """Exponent of the number of nodes by which it slows down; None: the link's own."""
    accelerators_per_node: int | None = None
    """Accelerators per node; if the number of accelerators is no multiple of it, the largest divisor of both
    applies."""
    tflops: Literal["hardware", "model", "causal"] = "model"
    """Convention behind a row that has only TFLOP/s: the model's FLOP with full attention (``model``), with causal
    attention counted half (``causal``), or with recomputation (``hardware``)."""

    def recompute_of(self, model: str, device: str, row: Row) -> str:
        """Return the recomputation of a run whose cell is blank, in the words of such a cell."""
        fitting = (one.recompute for one in self.recipes if one.is_for(model, device, row))
        return next(fitting, self.recompute)


def source_of(row: Row) -> Source:
    """Return the description of the publication that a row was taken from.

    It is the description with whose key the row's ``source`` cell begins. A value that the description lacks is the
    default of the training software that the description names; without one, of the software that the row names;
    without both, a typical default.
    """
    named = _software_named(row)
    of_source = (one for one in descriptions()["source"] if text(row, "source").startswith(tuple(one["match"])))
    return _described(named, next(of_source, {}))


def _described(named: str | None, known: Mapping[str, Any]) -> Source:
    of_source = dict(known)
    name = of_source.pop("software", named)
    defaults = descriptions()["software"][name] if name else {}
    return from_plain(Source, {**defaults, **of_source}, f"source.{name}")


def _software_named(row: Row) -> str | None:
    """The first software whose name occurs, of the time that the row tells: by its column, else by source and notes."""
    month = _month(row)
    for words in (text(row, "framework", "software", "trainer"), text(row, "source"), text(row, "notes")):
        for name, entry in descriptions()["software"].items():
            in_time = month <= entry.get("until", "9999") if month else "until" not in entry
            there = all(re.search(pattern, text(row, name).lower()) for name, pattern in entry.get("where", {}).items())
            if in_time and there and any(re.search(pattern, words.lower()) for pattern in entry["match"]):
                return str(name)
    return None


def _month(row: Row) -> str:
    """Year and month of the table, as ``2023-11``, where its source tells: by the number of a paper, or in words."""
    words = f"{text(row, 'date')} {text(row, 'source')}"
    released = re.match(r"(\d\d)\.(\d\d)(?!\d)", text(row, "release"))  # NVIDIA's containers: 24.07
    if released:
        return f"20{released[1]}-{released[2]}"
    paper = re.search(r"arxiv:? ?(\d\d)(\d\d)\.\d", words.lower())
    if paper:
        return f"20{paper[1]}-{paper[2]}"
    written = re.search(r"(?<!\d)(20[12]\d)(?:-(\d\d))?(?!\d)", words)
    if written:
        return f"{written[1]}-{written[2] or 12}"
    return _UNDATED_FP16 if "fp16" in text(row, "precision").lower() and "a100" in text(row, "gpu").lower() else ""


_UNDATED_FP16 = "2022-06"
"""Date assumed for undated fp16 training on an A100: bf16 was not usual before."""


@cache
def descriptions() -> Mapping[str, Any]:
    """Return the contents of ``sources.toml``.

    It has ``software`` by name, in the order in which names are recognised, and a list of every ``source``.
    """
    return tomllib.loads(files("autotuner.backtests").joinpath("sources.toml").read_text(encoding="utf-8"))


def calibration_of(row: Row, accelerator: str) -> Calibration | None:
    """Return the correction of speed that was fitted to the row's cluster.

    None if no run of the row's source and device was fitted.

    The constants are in ``clusters.toml``, which ``research/fit_stacks.py`` writes.
    """
    source = text(row, "source")
    fitting = (known for begins, known in _clusters().items() if source.startswith(begins))
    return next(fitting, {}).get(accelerator)


@cache
def _clusters() -> Mapping[str, Mapping[str, Calibration]]:
    """Return the calibrations by the beginning of a source's name, then by accelerator."""
    document = tomllib.loads(files("autotuner.backtests").joinpath("clusters.toml").read_text(encoding="utf-8"))
    return {
        source: {device: from_plain(Calibration, one, f"{source}.{device}") for device, one in devices.items()}
        for source, devices in document.items()
    }


def cluster_of(row: Row, source: Source) -> Cluster:
    """Return the cluster of a row.

    Unless the row or its source says otherwise, the accelerator has its usual nodes and network.

    Raises:
        UnusableRow: The accelerator is unknown, or the row does not tell how many there are.
        NotFound: The catalog has no network of the given name.
    """
    accelerator, ranks = _accelerator(text(row, "gpu")), count(row, "num_gpus")
    usual = source.accelerators_per_node or accelerator_facts(accelerator)["accelerators_per_node"].value
    per_node = maybe_count(row, "gpus_per_node") or usual
    per_node = math.gcd(ranks, per_node) if ranks > per_node else ranks
    cluster = load_cluster(f"{accelerator}:{ranks // per_node}x{per_node}")
    network = text(row, "inter_node_link") or source.inter_node_link
    link = load_link(network) if network else cluster.inter_node_link
    if source.congestion is not None:
        link = replace(link, congestion=source.congestion)
    domain = maybe_count(row, "nvlink_domain") or cluster.nvlink_domain or per_node
    return replace(
        cluster,
        inter_node_link=link,
        oversubscription=source.oversubscription,
        nvlink_domain=domain if domain > per_node else None,
    )


_DEVICES = (
    *((name, name) for name in ("gb300", "gb200", "b300", "b200")),
    (r"gh200.*144|gh200.*hbm3e", "gh200-144gb"),
    *((name, name) for name in ("gh200", "h200", "h800", "h20")),
    (r"h100.*(nvl(?!ink)|94)", "h100-nvl"),
    (r"h100.*pci", "h100-pcie"),
    (r"h100.*(96|hbm2e|500 ?w)", "h100-96gb"),
    (r"h100.*64 ?g", "h100-64gb"),
    (r"h100", "h100-sxm"),
    (r"a800", "a800"),
    (r"a100.*40 ?g", "a100-40gb"),
    (r"a100.*64 ?g", "a100-64gb"),
    (r"a100", "a100-80gb"),
    *((name, name) for name in ("l40s", "v100")),
    *((name, f"{name}x") for name in ("mi355", "mi350", "mi325", "mi300", "mi250")),
    *((name, f"rtx-{name}") for name in ("4090", "5090")),
    (r"pro ?6000", "rtx-pro-6000"),
    (r"a10(g|$| )", "a10"),
)
"""Patterns in a table's name of a GPU, in small letters and with blanks between words; the first match counts."""


def _accelerator(called: str) -> str:
    """The catalog's name for what a table calls a GPU: ``A100-SXM4-80GB``, ``H100-96GB-HBM2e-500W``."""
    name = called.lower().strip("?")
    try:
        return load_accelerator(name).name
    except NotFound as unknown:
        words_of_it = re.sub(r"[^a-z0-9]+", " ", name)
        found = next((accelerator for pattern, accelerator in _DEVICES if re.search(pattern, words_of_it)), None)
        if found is None:
            raise UnusableRow(f"no accelerator {called!r} in the catalog") from unknown
        return found
