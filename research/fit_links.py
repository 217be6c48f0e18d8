"""Fits the constants of links to published collective benchmarks, and what a delegated send costs.

``python -m research.fit_links`` prints what goes into ``autotuner/catalog/links.toml`` and how far the laws of
``costmodel.collectives`` miss the rows: median and 90th percentile of |predicted / measured - 1|, in sample, by source,
collective and decade of sizes, and with each (source, number of ranks) or each decade left out of the fit that predicts
it. A fit minimises the logarithm of predicted over measured time, with a loss that turns linear where a row is an
outlier. Messages below 8 KiB are left out: training has none.

``--delegates`` prints what a delegated send costs when nothing is wrong. It compares four ways in which delegates and
copies may share what carries them (each rank its own, or all ranks of a stage one) over a grid of rates, by the squared
errors of the four iterations without slow links whose sends arXiv 2504.19232 delegates all the same.
``autotuner.backtests.slow_links`` uses the best; no iteration under slow links has a say.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from autotuner.backtests.slow_links import BYTES_PER_WIDTH
from autotuner.catalog.hardware import load_link
from autotuner.core.columns import Booleans, Floats, Integers
from autotuner.core.link import Link
from autotuner.costmodel.communication import collectives
from autotuner.costmodel.communication.group import Group
from autotuner.schedules.planner import adaptive, warm_up
from autotuner.schedules.schedule import Schedule
from autotuner.schedules.simulate import PassTimes, delegated, simulate

Record = Mapping[str, str]
Texts = npt.NDArray[np.str_]

TABLE = Path(__file__).parent.parent / "tests" / "published" / "nccl_bandwidth.csv"
MIN_BYTES = 2**13
OUTLIER = 0.1
"""Relative error at which the loss changes from square to linear: repeated runs of one benchmark differ by this
much."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A fit of the constants of one link in the catalog to published times of collectives.

    ``keep`` selects the measurements, and ``constants`` names the fields of the link to fit.
    """

    link: str
    """Name of the link in the catalog."""
    keep: Callable[[Record], bool]
    """Function that returns True if a record is used in this fit."""
    constants: tuple[str, ...]
    """Fields of ``Link`` to fit; the others keep the catalog's values."""
    intra_node_link: str | None = None
    """For a link between nodes, the link inside the nodes."""


INSIDE = ("efficiency", "latency_s", "start_s", "ramp_s")
FITS = (
    Fit(
        link="nvlink2",
        keep=lambda r: r["gpu"] == "v100" and r["gpus"] == "8",  # fewer are not all linked (no switch)
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
    """Published times of collectives, as columns with one element for each measurement.

    ``without_multicast`` is True where the benchmark ran with multicast in the switches (NVLS) turned off.
    """

    source: Texts
    collective: Texts
    without_multicast: Booleans
    num_ranks: Integers
    ranks_per_node: Integers
    payload_bytes: Floats
    measured_s: Floats

    def where(self, kept: Booleans) -> Rows:
        """Return only the measurements for which the mask ``kept`` is True."""
        return Rows(**{name: column[kept] for name, column in vars(self).items()})

    @property
    def decade(self) -> Integers:
        """Return the power of ten of each measurement's payload, for example 6 for 1 MB to 10 MB."""
        return np.floor(np.log10(self.payload_bytes)).astype(np.int64)


def load_rows(keep: Callable[[Record], bool], path: Path = TABLE) -> Rows:
    """Return the published times of collectives for which ``keep`` is True, without messages of less than 8 KiB."""
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
    """Return the seconds that the cost model predicts for each measured collective.

    Args:
        rows: The measured collectives.
        intra: The link inside nodes.
        inter: The link between nodes.
    """
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
    """Return the seconds that the cost model predicts for each measured collective, with ``link`` as the fitted link.

    If the fit is for a link between nodes, ``link`` connects the nodes. Otherwise it connects the devices of one node.
    """
    intra = link if fit.intra_node_link is None else load_link(fit.intra_node_link)
    return predicted_s(rows, intra, link)


def fitted(fit: Fit, rows: Rows) -> Link:
    """Return the fit's link with the constants that predict these measured collectives best."""
    start = load_link(fit.link)

    def link(logarithms: Floats) -> Link:
        return replace(start, **dict(zip(fit.constants, np.exp(logarithms).tolist(), strict=True)))

    def misses(logarithms: Floats) -> Floats:
        return np.log(predicted_on(fit, link(logarithms), rows) / rows.measured_s)

    guess = np.log([getattr(start, name) for name in fit.constants])
    most = np.log([1.0 if name.endswith("efficiency") else np.inf for name in fit.constants])
    return link(least_squares(misses, guess, bounds=(-np.inf, most), loss="soft_l1", f_scale=OUTLIER).x)


def left_out_s(fit: Fit, rows: Rows, key: Texts | Integers) -> Floats:
    """Return the predicted seconds of each collective, from constants that were fitted without collectives like it.

    Args:
        fit: The link and its constants to fit.
        rows: The measured collectives.
        key: One value for each collective. Collectives with the same value, such as the same source, are left out of
            the fit together.
    """
    predicted = np.zeros(len(key))
    for value in np.unique(key):
        here = key == value
        predicted[here] = predicted_on(fit, fitted(fit, rows.where(~here)), rows.where(here))
    return predicted


def misses_of(predicted: Floats, rows: Rows) -> str:
    """Return a text with the median and the 90th percentile of |predicted / measured - 1|, and the median of the ratio.

    The number of collectives follows in brackets.
    """
    ratio = predicted / rows.measured_s
    error = np.abs(ratio - 1)
    return f"{np.median(error):6.1%} {np.quantile(error, 0.9):6.1%} x{np.median(ratio):.2f} ({len(ratio)})"


def report(fit: Fit) -> str:
    """Return the lines for one link: its fitted constants, and the errors of the predicted times of collectives.

    There are errors of the fit itself, errors for collectives that were left out of the fit, and errors by source, kind
    of collective and size.
    """
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


_RATES = (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 1e6)
_COPY_RATES = (5, 7.5, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 1e6)
"""Tried rates in GB/s; the last one means that copies cost nothing."""


@dataclass(frozen=True, kw_only=True)
class Healthy:
    """A published pipeline without slow links, with its measured iteration times in milliseconds.

    In ``plain_ms``, the ranks send their own messages. In ``delegated_ms``, separate processes (delegates) send them.
    Source: arXiv 2504.19232.
    """

    num_ranks: int
    num_micro_batches: int
    ranks_per_stage: int
    hidden: int
    plain_ms: float
    delegated_ms: float

    @cached_property
    def schedule(self) -> Schedule:
        """Return the zero-bubble pipeline schedule that is planned for this pipeline without any delay of links."""
        equal = PassTimes.equal(self.num_ranks, 1.0, 1.0, 1.0)
        return adaptive(equal, self.num_micro_batches, warm_up(equal))

    @cached_property
    def times(self) -> PassTimes:
        """Return the times of passes with which a simulation of this pipeline takes exactly the measured ``plain_ms``.

        ``plain_ms`` is the time of an iteration in which the ranks send their own messages. The forward pass, the
        backward pass for inputs and the pass for weights take equally long.
        """
        unit = PassTimes.equal(self.num_ranks, 1.0, 1.0, 1.0)
        pass_s = self.plain_ms / 1e3 / simulate(self.schedule, unit).makespan_s
        return PassTimes.equal(self.num_ranks, pass_s, pass_s, pass_s)


HEALTHY = {
    "7B": Healthy(num_ranks=4, num_micro_batches=12, ranks_per_stage=1, hidden=5120, plain_ms=394, delegated_ms=435),
    "14B": Healthy(num_ranks=8, num_micro_batches=24, ranks_per_stage=1, hidden=5120, plain_ms=767, delegated_ms=787),
    "30B": Healthy(num_ranks=8, num_micro_batches=24, ranks_per_stage=8, hidden=8192, plain_ms=933, delegated_ms=1104),
    "60B": Healthy(num_ranks=8, num_micro_batches=24, ranks_per_stage=8, hidden=11264, plain_ms=962, delegated_ms=1165),
}


@dataclass(frozen=True, kw_only=True, order=True)
class DelegationFit:
    """The fitted rates at which delegates (processes that send for a rank) copy and send messages, with the errors.

    The errors are those of simulated iterations of pipelines without slow links.
    """

    squared: float
    """Sum of squared errors."""
    shares_transfers: bool
    """True if all ranks of a stage share the rate of transfers; else each delegate has it for itself."""
    shares_copies: bool
    """True if all ranks of a stage share the rate of copies."""
    transfer_gb_per_s: float
    copy_gb_per_s: float
    errors: tuple[float, ...]
    """Predicted / measured - 1, by model."""


def fits() -> Iterator[DelegationFit]:
    """Yield the best fit for each of four assumptions on delegates, which are processes that send for a rank.

    Either each delegate has the whole rate of sending, or all ranks of a stage share it. The same holds for the rate of
    copying.
    """
    for transfers, copies in product((False, True), repeat=2):
        yield min(_fit(transfers, copies, *rates) for rates in product(_RATES, _COPY_RATES))


def _fit(shares_transfers: bool, shares_copies: bool, rate: float, copy_rate: float) -> DelegationFit:
    errors = []
    for one in HEALTHY.values():
        num_bytes = BYTES_PER_WIDTH * one.hidden
        overhead_s = num_bytes * (one.ranks_per_stage if shares_transfers else 1) / (rate * 1e9)
        copy_s = num_bytes * (one.ranks_per_stage if shares_copies else 1) / (copy_rate * 1e9)
        took_s = simulate(one.schedule, one.times, delegated(3, overhead_s=overhead_s, copy_s=copy_s)).makespan_s
        errors.append(1e3 * took_s / one.delegated_ms - 1)
    return DelegationFit(
        squared=sum(error**2 for error in errors),
        shares_transfers=shares_transfers,
        shares_copies=shares_copies,
        transfer_gb_per_s=rate,
        copy_gb_per_s=copy_rate,
        errors=tuple(errors),
    )


def _print_delegates() -> None:
    """Print the four fits, the best first."""
    for fit in sorted(fits()):
        errors = ", ".join(f"{name} {error:+.1%}" for name, error in zip(HEALTHY, fit.errors, strict=True))
        print(  # noqa: T201  # a benchmark prints its result
            f"transfers {fit.transfer_gb_per_s:g} GB/s{' shared' * fit.shares_transfers}, copies "
            f"{fit.copy_gb_per_s:g} GB/s{' shared' * fit.shares_copies}: squared {fit.squared:.5f}; {errors}"
        )


def main() -> None:
    """Print the fitted constants of links; with ``--delegates``, the costs of delegated sends instead.

    A delegated send is one that a separate process carries out for a rank.
    """
    if "--delegates" in sys.argv:
        return _print_delegates()
    for each in FITS:
        sys.stdout.write(report(each))
    return None


if __name__ == "__main__":
    main()
