"""Writes fitted constants into the tables that hold them, leaving everything else in these as it is."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from autotuner.backtest.table import Sheet
from autotuner.costmodel.uncertainty import CLUSTER, RESIDUAL
from research.robust_fit import Constant, Values

_ROOT = Path(__file__).resolve().parent.parent / "autotuner"
STACKS = _ROOT / "catalog" / "stacks.toml"
ACCELERATORS = _ROOT / "catalog" / "accelerators.toml"
CLUSTERS = _ROOT / "backtest" / "clusters.toml"

_CLUSTERS_HEAD = """\
# Step times on the clusters of published tables over those of a typical one, by source and accelerator. Written by
# `python -m research.fit_stacks --write`; do not edit.
"""


def write_stacks(values: Values) -> None:
    """Every stack's constants, to three digits."""
    text = STACKS.read_text(encoding="utf-8")
    for constant, value in values.items():
        if constant.owner == "stack":
            text = with_line(text, constant.name, constant.field, _number(constant, value))
    STACKS.write_text(text, encoding="utf-8")


def write_devices(values: Values, source: str) -> None:
    """Every device's sustained share, with the fit as its source."""
    text = ACCELERATORS.read_text(encoding="utf-8")
    for constant, value in values.items():
        if constant.owner == "device":
            fact = f'{{ value = {_number(constant, value)}, source = "{source}" }}'
            text = with_line(text, constant.name, constant.field, fact)
    ACCELERATORS.write_text(text, encoding="utf-8")


def write_clusters(values: Values, sheets: Sequence[Sheet]) -> None:
    """Every cluster's factor, with what is left of its deviation."""
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
    """Median error of each stack's runs, whose source was left out, into its origin."""
    text = STACKS.read_text(encoding="utf-8")
    for stack, error in errors.items():
        text = with_left_out_error(text, stack, error)
    STACKS.write_text(text, encoding="utf-8")


def with_left_out_error(text: str, stack: str, error: float) -> str:
    """The text whose stack has the error in its origin, in the place of an older one."""
    begins, old = rf"^\[{re.escape(stack)}\]\n(?:(?!\[).*\n)*?origin = {{ .*?", r", left_out_error = [\d.]+"
    origin = re.compile(f"({begins})(?:{old})? }}", re.MULTILINE)
    return origin.sub(rf"\g<1>, left_out_error = {error:.3f} }}", text)


def cluster_deviation_left(num_runs: int) -> float:
    """Deviation of a cluster's factor after so many runs on it."""
    return float((CLUSTER**-2 + num_runs * RESIDUAL**-2) ** -0.5)


def _number(constant: Constant, value: float) -> str:
    return f"{min(value, constant.most):.3g}"


def with_line(text: str, section: str, field: str, value: str) -> str:
    """The text whose section has the field with that value: in the place of its old one, or at the end."""
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
    """Every constant as a person reads it."""
    return [f"{c.owner} {c.name}: {c.field} = {_number(c, value)}" for c, value in values.items()]
