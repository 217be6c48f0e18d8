"""Sources: the clusters and software that tables were measured with, as their publications describe them."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
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
    """The recomputation that a training software uses by default, for certain models, devices and precisions."""

    models: tuple[str, ...]
    """Catalog names of the models that the recipe is for."""
    recompute: str
    """Recomputation of the recipe, in the table's words."""
    devices: tuple[str, ...] = ()
    """Beginnings of the catalog names of the accelerators that the recipe is for; empty: all."""
    precision: str = ""
    """Pattern of the precision in the table's words that the recipe is for; empty: any."""
    sharding: str = ""
    """Shard level of the recipe, in the table's words."""

    def is_for(self, model: str, device: str, row: Row) -> bool:
        """Return True if the recipe applies to a run of this model on this device.

        Args:
            model: Catalog name of the model.
            device: Catalog name of the accelerator.
            row: Row of the run. Its precision and its sharding must match the recipe too.
        """
        on_device = not self.devices or device.startswith(self.devices)
        in_format = re.search(self.precision, text(row, "precision").lower())
        sharded = re.search(self.sharding, text(row, "zero_or_fsdp").lower())
        return model in self.models and on_device and in_format is not None and sharded is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A description of the publication or the software that rows of a table come from.

    Many rows leave cells blank. The description gives the values that blank cells stand for. The defaults are for rows
    from an unknown source.
    """

    match: tuple[str, ...] = ()
    """Beginnings of the ``source`` column that this source matches. If the source is software: patterns of its name."""
    where: dict[str, str] = field(default_factory=dict)
    """Patterns that other columns must match too, by the column's name. Used only if the source is software."""
    until: str | None = None
    """Year and month of the last tables that this source describes; None: it describes tables until today."""
    stack: str = "typical"
    """Name of the software stack in the catalog."""
    sharding: str = "zero1"
    """Shard level for rows with a blank cell, in the table's words."""
    attention: str = "flash"
    """Attention kernel for rows with a blank cell, in the table's words."""
    flash: str = "flash"
    """Version of FlashAttention that the word ``flash`` alone means."""
    recompute: str = "none"
    """Recomputation for rows with a blank cell, in the table's words, unless a recipe states another."""
    recipes: tuple[Recipe, ...] = ()
    """Recipes for certain models. The first recipe that matches counts."""
    fp8_recipe: str = "tensorwise"
    """Scaling recipe of fp8 for tables that do not state one, by our label."""
    context_exchange: str = "ring"
    """Exchange between context ranks for attention, by our label."""
    sequence_parallel: bool = True
    """Sequence parallelism for rows with a blank cell."""
    compiled: bool = False
    """Compilation of layers for rows with a blank cell."""
    names_fused_norm: bool = False
    """True if the kernel column says where norms are fused, so that norms are not fused in other rows; otherwise all
    norms are fused."""
    capacity_factor: float | None = None
    """Capacity factor to which experts are padded if the row has none; None: no padding."""
    vocab: int | None = None
    """Size of the vocabulary; None: the vocabulary of the model's family."""
    micro_batches: dict[str, int] = field(default_factory=dict)
    """Micro-batch size for rows with a blank cell, by a word of the model's name; 1 for all other models."""
    inter_node_link: str | None = None
    """Catalog name of the network link of one accelerator; None: the usual link."""
    oversubscription: float = 2.0
    """Oversubscription of the cluster's network. The default is the median of the values that were fitted to published
    tables."""
    congestion: float | None = None
    """Exponent of the number of nodes by which the network slows down; None: the link's own exponent."""
    accelerators_per_node: int | None = None
    """Number of accelerators per node. If the number of accelerators is not a multiple of it, the greatest common
    divisor of both is used."""
    tflops: Literal["hardware", "model", "causal"] = "model"
    """Meaning of TFLOP/s in rows without a time: FLOP of the model with full attention (``model``), with causal
    attention counted as half (``causal``), or including recomputation (``hardware``)."""

    def recompute_of(self, model: str, device: str, row: Row) -> str:
        """Return the recomputation that this source (a publication or software) implies for a run with a blank cell.

        The result is text, in the words that the cell would have.

        Args:
            model: Catalog name of the model.
            device: Catalog name of the accelerator.
            row: Row of the run.
        """
        fitting = (one.recompute for one in self.recipes if one.is_for(model, device, row))
        return next(fitting, self.recompute)


def source_of(row: Row) -> Source:
    """Return the description of the publication from which a row was taken.

    A description applies to rows whose ``source`` cell begins with its key. If the description has no value for a
    field, the value comes from the training software that the description names, else from the software that the row
    names, else from typical defaults.
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
    """Return the name of the first software that matches a row at its date.

    It is looked up in the software column, otherwise in source and notes.
    """
    month = _month(row)
    for words in (text(row, "framework", "software", "trainer"), text(row, "source"), text(row, "notes")):
        for name, entry in descriptions()["software"].items():
            in_time = month <= entry.get("until", "9999") if month else "until" not in entry
            there = all(re.search(pattern, text(row, name).lower()) for name, pattern in entry.get("where", {}).items())
            if in_time and there and any(re.search(pattern, words.lower()) for pattern in entry["match"]):
                return str(name)
    return None


def _month(row: Row) -> str:
    """Return the year and month of the table, such as ``2023-11``, if its source states them.

    They are read from an arXiv number or from words.
    """
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
"""Date that is assumed for undated fp16 training on an A100, because bf16 was not usual before it."""


@cache
def descriptions() -> Mapping[str, Any]:
    """Return the contents of ``sources.toml``: descriptions of training software and of publications.

    ``software`` has descriptions by name, in the order in which names are recognised. ``source`` is a list of
    publications.
    """
    return tomllib.loads(files("autotuner.backtests").joinpath("sources.toml").read_text(encoding="utf-8"))


def calibration_of(row: Row, accelerator: str) -> Calibration | None:
    """Return the factors that correct predicted times, fitted to runs from the row's source on the same accelerator.

    The result is None if there are none. The factors are in ``clusters.toml``, which ``research/fit_stacks.py`` writes.
    """
    source = text(row, "source")
    fitting = (known for begins, known in _clusters().items() if source.startswith(begins))
    return next(fitting, {}).get(accelerator)


@cache
def _clusters() -> Mapping[str, Mapping[str, Calibration]]:
    """Return the fitted calibrations by the beginning of a source's name, then by accelerator."""
    document = tomllib.loads(files("autotuner.backtests").joinpath("clusters.toml").read_text(encoding="utf-8"))
    return {
        source: {device: from_plain(Calibration, one, f"{source}.{device}") for device, one in devices.items()}
        for source, devices in document.items()
    }


def cluster_of(row: Row, source: Source) -> Cluster:
    """Return the cluster on which the run of a row took place.

    If neither the row nor its source says otherwise, the accelerator has its usual nodes and network.

    Raises:
        UnusableRow: The accelerator is unknown, or the row does not give the number of accelerators.
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
"""Patterns of the names that tables use for GPUs, in lower case with blanks between words. The first pattern that
matches counts."""


@lru_cache  # a table has few GPUs and thousands of rows
def _accelerator(called: str) -> str:
    """Return the catalog name of a GPU that a table names, such as ``A100-SXM4-80GB`` or ``H100-96GB-HBM2e-500W``."""
    name = called.lower().strip("?")
    try:
        return load_accelerator(name).name
    except NotFound as unknown:
        words_of_it = re.sub(r"[^a-z0-9]+", " ", name)
        found = next((accelerator for pattern, accelerator in _DEVICES if re.search(pattern, words_of_it)), None)
        if found is None:
            raise UnusableRow(f"the accelerator {called!r} is not in the catalog") from unknown
        return found
