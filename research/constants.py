"""Positive constants of different owners: fits them, and writes them into the tables of the catalog.

Each sheet of measured runs depends on a few owners: a device, a stack, the network of its cluster, and the cluster
itself, whose efficiency no law explains. A constant only changes the sheets of its owner, so a single fit can cover all
tables. The errors are log(predicted / measured), with a loss that grows like a logarithm, so that network faults do not
bias the fit. The constants are positive, and their logarithms have normal priors. The functions that write them leave
everything else in the tables as it is.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np

from autotuner.backtests.measured_table import Sheet
from autotuner.core.cluster import Cluster
from autotuner.core.columns import Floats
from autotuner.core.job import Job
from autotuner.costmodel.predict import predict
from autotuner.costmodel.uncertainty import CLUSTER, RESIDUAL

TOLERANCE = 0.07
"""Relative error beyond which a row gets less weight: about the scatter of the best-described tables."""

Owner = Literal["device", "stack", "network", "cluster"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A positive constant of the cost model, such as the launch time of a kernel, which is fitted to measured runs.

    The logarithm of the constant has a normal prior: its mean is log(``start``), its standard deviation ``deviation``.
    """

    owner: Owner
    """Kind of the constant's owner. A ``cluster`` has a single constant, the factor on all of its step times."""
    name: str
    """Name of the owner: an accelerator, a stack, or the beginning of the sheets' sources; for a cluster, followed by a
    bar and its accelerator."""
    field: str
    """Field of ``Accelerator``, of ``Stack``, or of ``Cluster`` or its ``Link``."""
    start: float
    deviation: float = 1.0
    """Standard deviation of the prior for the constant's logarithm around ``start``."""
    most: float = np.inf

    def concerns(self, sheet: Sheet) -> bool:
        """Return True if this constant changes the predicted step times of a sheet (the measured runs of one job).

        For example, a constant of the H100 concerns only jobs on H100s.
        """
        device, source = sheet.job.cluster.accelerator.name, sheet.source
        match self.owner:
            case "device":
                return self.name == device
            case "stack":
                return self.name == sheet.job.stack.name
            case "network":
                return source.startswith(self.name)
            case "cluster":
                begins, _, of_device = self.name.partition("|")
                return source.startswith(begins) and of_device in ("", device)


Values = Mapping[Constant, float]


def with_values(sheet: Sheet, values: Values) -> Sheet:
    """Return a sheet (the measured runs of one job) whose job has these values of the cost model's constants.

    Constants of other devices, stacks or networks have no effect. The factor of the job's cluster is not part of the
    job; ``cluster_factor`` returns it.
    """
    concerned = {constant: value for constant, value in values.items() if constant.concerns(sheet)}
    return replace(sheet, job=_with(sheet.job, concerned))


def cluster_factor(sheet: Sheet, values: Values) -> float:
    """Return the factor by which the cluster of a sheet makes all its step times longer; 1 if no factor is known.

    A sheet consists of the measured runs of one job. The factor describes effects that no other constant explains.
    """
    factors = (value for one, value in values.items() if one.owner == "cluster" and one.concerns(sheet))
    return prod(factors, start=1.0)


def log_errors(sheet: Sheet, values: Values) -> Floats:
    """Return log(predicted / measured step time) for each run of a sheet that did not run out of memory.

    Args:
        sheet: The measured runs of one job.
        values: The constants of the cost model to predict with.
    """
    measured = ~sheet.out_of_memory
    predicted_s = predict(sheet.layouts.take(measured), with_values(sheet, values).job).step_time.total_s
    errors: Floats = np.log(predicted_s * cluster_factor(sheet, values) / sheet.step_time_s[measured])
    return errors


def _with(job: Job, values: Values) -> Job:
    named: dict[Owner, dict[str, Any]] = {"device": {}, "stack": {}, "network": {}, "cluster": {}}
    for constant, value in values.items():
        named[constant.owner][constant.field] = min(float(value), constant.most)
    accelerator = replace(job.cluster.accelerator, **named["device"])
    stack = replace(job.stack, **named["stack"])
    cluster = _network(replace(job.cluster, accelerator=accelerator), named["network"])
    return replace(job, cluster=cluster, stack=stack, calibration=None)  # clusters' factors are fitted anew


def _network(cluster: Cluster, values: Mapping[str, Any]) -> Cluster:
    link = cluster.inter_node_link
    of_link = {name: value for name, value in values.items() if name in {f.name for f in fields(link)}}
    return replace(
        cluster,
        inter_node_link=replace(link, **of_link),
        oversubscription=max(1.0, values.get("oversubscription", cluster.oversubscription)),
    )


# ---------------------------------------------------------------- Gauss-Newton, reweighted by a Cauchy loss
def fit(
    sheets: Sequence[Sheet], constants: Sequence[Constant], start: Values | None = None, rounds: int = 15
) -> dict[Constant, float]:
    """Return the values of the constants that predict the step times of the measured runs best.

    The errors are log(predicted / measured), with a loss under which outliers count little (Cauchy). The minimum is
    found by Gauss-Newton steps.

    Args:
        sheets: The measured runs, by job.
        constants: The constants to fit, with their priors.
        start: Values at which the search begins; None: the means of the priors.
        rounds: Highest number of Gauss-Newton steps.
    """
    if not constants:
        return {}
    problem = _Problem(sheets, constants)
    prior = np.log([constant.start for constant in constants])
    point = prior.copy() if start is None else np.log([start.get(constant, constant.start) for constant in constants])
    precision = 1 / np.array([constant.deviation for constant in constants]) ** 2
    error, damping = problem.errors(point), 1e-3
    best = problem.loss(error) + float((precision * (point - prior) ** 2).sum())
    for _ in range(rounds):
        slope = problem.slope(point, error)
        weight = problem.weight / (1 + (error / TOLERANCE) ** 2) / TOLERANCE**2
        curvature = slope.T @ (weight[:, None] * slope) + np.diag(precision)
        gradient = slope.T @ (weight * error) + precision * (point - prior)
        before = best
        for _ in range(6):
            step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), -gradient).clip(-1, 1)
            tried = problem.errors(point + step)
            loss = problem.loss(tried) + float((precision * (point + step - prior) ** 2).sum())
            if loss < best:
                point, error, best, damping = point + step, tried, loss, max(damping / 10, 1e-6)
                break
            damping *= 10
        if before - best < 1e-3 * before:
            break
    return dict(zip(constants, np.exp(point).tolist(), strict=True))


_USUAL_ROWS = 10
"""Number of rows of a model in one source at which a row has weight 1; with more rows each counts less, with fewer
more."""


class _Problem:
    """The errors of all sheets as a function of the constants."""

    def __init__(self, sheets: Sequence[Sheet], constants: Sequence[Constant]) -> None:
        self._sheets, self._constants = sheets, constants
        self._concerns = np.array([[constant.concerns(sheet) for constant in constants] for sheet in sheets])
        ends = np.cumsum([int((~sheet.out_of_memory).sum()) for sheet in sheets]).tolist()
        self._rows = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        self.weight = self._weights(ends[-1])

    def _weights(self, num_rows: int) -> Floats:
        """Return the weights of the rows; all rows of a model in one source together count like their number's root.

        Many rows of the same job are not as informative as rows of different jobs.
        """
        kinds = [(sheet.source, sheet.job.model.name) for sheet in self._sheets]
        counts: Counter[tuple[str, str]] = Counter()
        for kind, rows in zip(kinds, self._rows, strict=True):
            counts[kind] += rows.stop - rows.start
        weight = np.empty(num_rows)
        for kind, rows in zip(kinds, self._rows, strict=True):
            weight[rows] = (counts[kind] / _USUAL_ROWS) ** -0.5
        return weight

    def errors(self, at: Floats, only: int | None = None, known: Floats | None = None) -> Floats:
        """Return the errors of every measured row.

        If only one constant changed (``only``), rows that it does not concern keep their ``known`` errors.
        """
        error = np.empty(len(self.weight)) if known is None else known.copy()
        for number, (sheet, rows) in enumerate(zip(self._sheets, self._rows, strict=True)):
            if only is None or self._concerns[number, only]:
                moves = np.flatnonzero(self._concerns[number]).tolist()
                error[rows] = log_errors(sheet, {self._constants[i]: float(np.exp(at[i])) for i in moves})
        return error

    def slope(self, at: Floats, error: Floats) -> Floats:
        columns = []
        for number, constant in enumerate(self._constants):
            if constant.owner == "cluster":
                moved = np.zeros(len(error))
                for is_concerned, rows in zip(self._concerns[:, number], self._rows, strict=True):
                    moved[rows] = is_concerned
                columns.append(moved)
                continue
            ahead = at.copy()
            ahead[number] += 0.02
            columns.append((self.errors(ahead, number, error) - error) / 0.02)
        return np.stack(columns, axis=1)

    def loss(self, error: Floats) -> float:
        return float((self.weight * np.log1p((error / TOLERANCE) ** 2)).sum())


_ROOT = Path(__file__).resolve().parent.parent / "autotuner"
STACKS = _ROOT / "catalog" / "stacks.toml"
ACCELERATORS = _ROOT / "catalog" / "accelerators.toml"
CLUSTERS = _ROOT / "backtests" / "clusters.toml"

_CLUSTERS_HEAD = """\
# Step times on the clusters of published tables over those of a typical one, by source and accelerator. Written by
# `python -m research.fit_stacks --write`; do not edit.
"""


def write_stacks(values: Values) -> None:
    """Write the fitted constants of software stacks into ``catalog/stacks.toml``, with three significant digits."""
    text = STACKS.read_text(encoding="utf-8")
    for constant, value in values.items():
        if constant.owner == "stack":
            text = with_line(text, constant.name, constant.field, _number(constant, value))
    STACKS.write_text(text, encoding="utf-8")


def write_devices(values: Values, source: str) -> None:
    """Write the fitted ``sustained_share`` of each accelerator into ``catalog/accelerators.toml``.

    It is the share of a short benchmark's FLOP/s that the accelerator keeps in long training.

    Args:
        values: Fitted constants; only those of devices are written.
        source: Text that the file gives as the source of these values.
    """
    text = ACCELERATORS.read_text(encoding="utf-8")
    for constant, value in values.items():
        if constant.owner == "device":
            fact = f'{{ value = {_number(constant, value)}, source = "{source}" }}'
            text = with_line(text, constant.name, constant.field, fact)
    ACCELERATORS.write_text(text, encoding="utf-8")


def write_clusters(values: Values, sheets: Sequence[Sheet]) -> None:
    """Write the factor on step times of every published cluster into ``backtests/clusters.toml``.

    The file also gives the standard deviation that remains after the fit, and the number of runs on the cluster.

    Args:
        values: Fitted constants; only the factors of clusters are written.
        sheets: All measured runs, from which the runs on each cluster are counted.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for constant, value in sorted(values.items(), key=lambda item: item[0].name):
        if constant.owner == "cluster":
            runs = sum(int((~sheet.out_of_memory).sum()) for sheet in sheets if constant.concerns(sheet))
            source, device = constant.name.split("|")
            deviation = cluster_deviation_left(runs)
            known = f"factor = {value:.3f}, deviation = {deviation:.3f}, num_runs = {runs}"
            found[source].append(f"{device} = {{ {known} }}")
    blocks = [f'["{source}"]\n' + "\n".join(lines) + "\n" for source, lines in found.items()]
    CLUSTERS.write_text("\n".join([_CLUSTERS_HEAD, *blocks]), encoding="utf-8")


def write_left_out_errors(errors: Mapping[str, float]) -> None:
    """Write into ``catalog/stacks.toml`` how wrong predictions are for sources that the fit did not use.

    Args:
        errors: Median of |predicted / measured - 1| by name of the software stack.
    """
    text = STACKS.read_text(encoding="utf-8")
    for stack, error in errors.items():
        text = with_left_out_error(text, stack, error)
    STACKS.write_text(text, encoding="utf-8")


def with_left_out_error(text: str, stack: str, error: float) -> str:
    """Return the text of ``stacks.toml`` with ``left_out_error`` in the ``origin`` of one stack set to ``error``."""
    begins, old = rf"^\[{re.escape(stack)}\]\n(?:(?!\[).*\n)*?origin = {{ .*?", r", left_out_error = [\d.]+"
    origin = re.compile(f"({begins})(?:{old})? }}", re.MULTILINE)
    return origin.sub(rf"\g<1>, left_out_error = {error:.3f} }}", text)


def cluster_deviation_left(num_runs: int) -> float:
    """Return the standard deviation of the logarithm of a cluster's factor, given ``num_runs`` measured runs.

    The factor is the ratio of step times on this cluster to those on a typical one. More runs make the deviation
    smaller.
    """
    return float((CLUSTER**-2 + num_runs * RESIDUAL**-2) ** -0.5)


def _number(constant: Constant, value: float) -> str:
    return f"{min(value, constant.most):.3g}"


def with_line(text: str, section: str, field: str, value: str) -> str:
    """Return the text of a TOML file in which ``field`` of ``section`` has a new value.

    An old line of the field is replaced; otherwise a line is added at the end of the section.
    """
    start = re.search(rf'^\["?{re.escape(section)}"?\]\n', text, flags=re.MULTILINE)
    assert start is not None, f"no section {section}"
    rest = text[start.end() :]
    next_section = re.search(r"^\[|^#.*\n(?:#.*\n)*\[|\n\n(?=#)", rest, flags=re.MULTILINE)
    length = next_section.start() if next_section else len(rest)
    body = rest[:length]
    line = re.compile(rf"^{field} = .*?(  # .*)?$", flags=re.MULTILINE)
    body = line.sub(f"{field} = {value}", body) if line.search(body) else f"{body.rstrip()}\n{field} = {value}\n"
    return text[: start.end()] + f"{body.rstrip()}\n\n{rest[length:].lstrip()}".rstrip() + "\n"


def as_lines(values: Mapping[Constant, float]) -> list[str]:
    """Return one line of text for each fitted constant, such as ``stack torchtitan: kernel_launch_s = 3.1e-05``."""
    return [f"{c.owner} {c.name}: {c.field} = {_number(c, value)}" for c, value in values.items()]
