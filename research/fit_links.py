"""Fits the constants of links to published collective benchmarks: ``python -m research.fit_links``.

Prints what goes into ``autotuner/catalog/links.toml`` and how far the laws of ``costmodel.collectives`` miss the rows:
median and 90th percentile of |predicted / measured - 1|, in sample, by source, collective and decade of sizes, and with
each (source, number of ranks) or each decade left out of the fit that predicts it. A fit minimises the logarithm of
predicted over measured time, with a loss that turns linear where a row is an outlier. Messages below 8 KiB are left
out: training has none.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from autotuner.catalog.hardware import load_link
from autotuner.core.columns import Booleans, Floats, Integers
from autotuner.core.link import Link
from autotuner.costmodel.communication import collectives
from autotuner.costmodel.communication.group import Group

Record = Mapping[str, str]
Texts = npt.NDArray[np.str_]

TABLE = Path(__file__).parent.parent / "tests" / "published" / "nccl_bandwidth.csv"
MIN_BYTES = 2**13
OUTLIER = 0.1
"""Relative miss at which the loss turns from square to linear: repeated runs of one benchmark differ by this much."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Which rows of the table fit which constants of a link."""

    link: str
    """Its name in the catalog."""
    keep: Callable[[Record], bool]
    """Says of a record whether it counts."""
    constants: tuple[str, ...]
    """Fields of ``Link`` to fit; the others stay as the catalog has them."""
    intra_node_link: str | None = None
    """For a link between nodes, the one inside them."""


INSIDE = ("efficiency", "latency_s", "start_s", "ramp_s")
FITS = (
    Fit(
        link="nvlink2",
        keep=lambda r: r["gpu"] == "v100" and r["gpus"] == "8",  # fewer do not have all links between them: no switch
        constants=("efficiency", "start_s", "ramp_s"),
    ),
    Fit(link="nvlink3", keep=lambda r: r["gpu"] == "a100", constants=INSIDE),
    Fit(
        link="nvlink4",
        keep=lambda r: r["gpu"] in {"h100", "h200"} and r["source"] != "ultrascale-playbook",
        constants=(*INSIDE, "multicast_efficiency"),
    ),
    Fit(
        link="nvlink5",
        keep=lambda r: r["gpu"] == "b200" and r["nodes"] == "1",
        constants=("efficiency", "start_s", "ramp_s", "multicast_efficiency"),
    ),
    Fit(
        link="edr100",
        intra_node_link="nvlink3",
        keep=lambda r: r["source"] == "ml-engineering-bench",
        constants=("latency_s", "ramp_s"),
    ),
    Fit(
        link="efa400-v4",
        intra_node_link="nvlink5",
        keep=lambda r: r["gpu"] == "b200" and r["nodes"] == "4" and int(r["payload_bytes"]) >= 2**20,
        constants=("latency_s", "ramp_s"),
    ),
    Fit(
        link="efa400",
        intra_node_link="nvlink4",
        keep=lambda r: r["source"] == "ultrascale-playbook" and r["nodes"] != "1",
        constants=("latency_s",),
    ),
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows:
    """Measured collectives as columns; some ran with multicast switched off."""

    source: Texts
    collective: Texts
    without_multicast: Booleans
    num_ranks: Integers
    ranks_per_node: Integers
    payload_bytes: Floats
    measured_s: Floats

    def where(self, kept: Booleans) -> Rows:
        """The rows for which it holds."""
        return Rows(**{name: column[kept] for name, column in vars(self).items()})

    @property
    def decade(self) -> Integers:
        """Power of ten of the size."""
        return np.floor(np.log10(self.payload_bytes)).astype(np.int64)


def load_rows(keep: Callable[[Record], bool], path: Path = TABLE) -> Rows:
    """Rows of the published table that count."""
    with path.open(encoding="utf-8") as lines:
        records = [r for r in csv.DictReader(lines) if int(r["payload_bytes"]) >= MIN_BYTES and keep(r)]
    return Rows(
        source=np.array([r["source"] for r in records]),
        collective=np.array([r["collective"] for r in records]),
        without_multicast=np.array([r["algorithm"] == "no_nvls" for r in records]),
        num_ranks=np.array([int(r["gpus"]) for r in records]),
        ranks_per_node=np.array([int(r["gpus_per_node"]) for r in records]),
        payload_bytes=np.array([float(r["payload_bytes"]) for r in records]),
        measured_s=np.array([1e-6 * float(r["time_us"]) for r in records]),
    )


def predicted_s(rows: Rows, intra: Link, inter: Link) -> Floats:
    """What the laws say of each row."""
    without = replace(intra, multicast_efficiency=0.0)
    return np.where(rows.without_multicast, _on_links(rows, without, inter), _on_links(rows, intra, inter))


def _on_links(rows: Rows, intra: Link, inter: Link) -> Floats:
    group = Group(
        num_ranks=rows.num_ranks,
        ranks_per_node=rows.ranks_per_node,
        crosses_nodes=rows.num_ranks > rows.ranks_per_node,
        intra_node_link=intra,
        inter_node_link=inter,
        oversubscription=1.0,
    )
    laws = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    return np.select(
        [rows.collective == law for law in laws],
        [getattr(collectives, f"{law}_s")(rows.payload_bytes, group) for law in laws],
    )


def predicted_on(fit: Fit, link: Link, rows: Rows) -> Floats:
    """What the laws say of each row when the fitted link is this one."""
    intra = link if fit.intra_node_link is None else load_link(fit.intra_node_link)
    return predicted_s(rows, intra, link)


def fitted(fit: Fit, rows: Rows) -> Link:
    """The link with the constants that suit these rows best."""
    start = load_link(fit.link)

    def link(logarithms: Floats) -> Link:
        return replace(start, **dict(zip(fit.constants, np.exp(logarithms).tolist(), strict=True)))

    def misses(logarithms: Floats) -> Floats:
        return np.log(predicted_on(fit, link(logarithms), rows) / rows.measured_s)

    guess = np.log([getattr(start, name) for name in fit.constants])
    most = np.log([1.0 if name.endswith("efficiency") else np.inf for name in fit.constants])
    return link(least_squares(misses, guess, bounds=(-np.inf, most), loss="soft_l1", f_scale=OUTLIER).x)


def left_out_s(fit: Fit, rows: Rows, key: Texts | Integers) -> Floats:
    """Predictions of every row by a fit to the rows whose key is another."""
    predicted = np.zeros(len(key))
    for value in np.unique(key):
        here = key == value
        predicted[here] = predicted_on(fit, fitted(fit, rows.where(~here)), rows.where(here))
    return predicted


def misses_of(predicted: Floats, rows: Rows) -> str:
    """Median and 90th percentile of the relative error, and the median ratio."""
    ratio = predicted / rows.measured_s
    error = np.abs(ratio - 1)
    return f"{np.median(error):6.1%} {np.quantile(error, 0.9):6.1%} x{np.median(ratio):.2f} ({len(ratio)})"


def report(fit: Fit) -> str:
    """Constants of one link and their errors, a line for each part of the rows."""
    rows = load_rows(fit.keep)
    link = fitted(fit, rows)
    predicted = predicted_on(fit, link, rows)
    ranks = np.char.add(np.char.add(rows.source, " "), rows.num_ranks.astype(np.str_))
    lines = [f"{fit.link}: " + ", ".join(f"{name} = {getattr(link, name):.2g}" for name in fit.constants)]
    lines.append(f"  in sample                {misses_of(predicted, rows)}")
    for name, key in (("source", rows.source), ("source and ranks", ranks), ("decade", rows.decade)):
        if len(np.unique(key)) > 1:
            lines.append(f"  {f'{name} left out':24} {misses_of(left_out_s(fit, rows, key), rows)}")
    for key in (rows.source, rows.collective, rows.decade):
        for value in np.unique(key):
            here = key == value
            label = f"1e{value} bytes" if isinstance(value, np.integer) else value
            lines.append(f"    {label:22} {misses_of(predicted[here], rows.where(here))}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for each in FITS:
        sys.stdout.write(report(each))
