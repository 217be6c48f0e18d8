"""Fits the constants of catalog/kernels.toml's matrix products to tests/published/gemm_throughput.csv.

``python -m research.fit_gemm`` prints, for each device and precision, the constants and the relative error on the
shapes they were fitted to, on left-out shapes (five times a fifth of the widths ``n``, whole) and by size of the
product; then the rates of unaligned products, and the catalog's laws against sources that nothing was fitted to. Needs
SciPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from autotuner.core.columns import Booleans, Floats
from autotuner.core.kernels import GemmLaw
from autotuner.costmodel.layer.matrix_products import gemm_s
from research.kernel_tables import Conversion, Products, load_gemm_law, load_products, product_error

MEASURED = (("a100-80gb", "bf16"), ("h100-sxm", "bf16"), ("h200", "bf16"), ("h100-sxm", "fp8"), ("h200", "fp8"))
FOLDS = 5
TRUSTED_ERROR = 0.05  # relative errors count squared below it and linearly above: single shapes are off by a third

# least, first guess, most
RANGES = {
    "peak_share": (0.2, 0.85, 1.0),
    "prologue": (1.0, 200.0, 2000.0),
    "wave_loss": (0.01, 0.5, 1.0),
    "small_tile_share": (0.2, 0.9, 1.0),
    # the shapes begin at 1,024: they cannot tell a latency below one microsecond from the prologue
    "latency_s": (1e-6, 4e-6, 3e-5),
}

CONVERSION_RANGES = {"start_s": (1e-7, 5e-6, 3e-5), "s_per_element": (1e-13, 2e-12, 1e-11)}
"""Ranges of what the benchmark does besides an fp8 product: the start of its kernels cannot be told from the latency of
the product, which is taken as that of bf16."""


def fit(products: Products, law: GemmLaw) -> dict[str, Any]:
    """The constants with the least error on these products; in 8 bits also those of the benchmark's conversions."""
    converts = law.operand_bytes < 2
    ranges = {name: values for name, values in RANGES.items() if name != "latency_s" or not converts}
    ranges |= CONVERSION_RANGES if converts else {}
    names = list(ranges)
    low, start, high = np.log(list(ranges.values())).T

    def constants(logarithms: Floats) -> dict[str, Any]:
        values = np.exp(logarithms).tolist()
        # the exponential of a bound's logarithm may lie beyond it by a rounding
        return {name: min(value, ranges[name][2]) for name, value in zip(names, values, strict=True)}

    def error(logarithms: Floats) -> Floats:
        return np.log1p(_error(products, law, constants(logarithms)))

    found = least_squares(error, start, bounds=(low, high), loss="soft_l1", f_scale=TRUSTED_ERROR)
    return constants(found.x)


def left_out_error(products: Products, law: GemmLaw) -> Floats:
    """Error of each product by constants that no product of its width helped to fit."""
    _, rank = np.unique(products.n, return_inverse=True)
    error = np.full(len(rank), np.nan)
    for fold in range(FOLDS):
        held = rank % FOLDS == fold
        constants = fit(products.take(~held), law)
        error[held] = _error(products.take(held), law, constants)
    return error


def _error(products: Products, law: GemmLaw, constants: dict[str, Any]) -> Floats:
    """Error of each product by such constants of the law and of the benchmark's conversions."""
    besides = {name: value for name, value in constants.items() if name in CONVERSION_RANGES}
    of_law = {name: value for name, value in constants.items() if name not in CONVERSION_RANGES}
    return product_error(products, replace(law, **of_law), Conversion(**besides))


SIZES: dict[str, Callable[[Products], Booleans]] = {
    "all": lambda p: np.full(len(p.m), True),
    "below 2e10 FLOP": lambda p: p.flop < 2e10,
    "m, n, k >= 4,096": lambda p: np.minimum(np.minimum(p.m, p.n), p.k) >= 4096,
}


def report_fit(accelerator: str, precision: str) -> Iterator[str]:
    """Constants and errors of one device and precision."""
    law, products = load_gemm_law(accelerator, precision), load_products("aiconfigurator", accelerator, precision)
    constants = fit(products, law)
    yield f"{accelerator} {precision}: " + ", ".join(f"{key} = {value:.3g}" for key, value in constants.items())
    fitted, left_out = _error(products, law, constants), left_out_error(products, law)
    for size, chosen in SIZES.items():
        rows = chosen(products)
        yield f"  {size:18s} {rows.sum():4d} rows  fitted {_summary(fitted[rows])}  left out {_summary(left_out[rows])}"


def report_unaligned() -> Iterator[str]:
    """Median rate of unaligned products over that of aligned ones; sweeps of n and of k apart."""
    products = load_products("cookbook", "a100", "bf16")
    rate = products.flop / products.time_s
    for name, swept, fixed in (("n", products.n, 14336), ("k", products.k, 51200)):
        other = products.k if name == "n" else products.n
        sweep = (products.m == 8192) & (other == fixed) & (np.abs(swept - np.median(swept[other == fixed])) < 64)
        aligned = np.median(rate[sweep & (swept % 8 == 0)])
        half = np.median(rate[sweep & (swept % 8 != 0) & (swept % 2 == 0)]) / aligned
        less = np.median(rate[sweep & (swept % 2 == 1)]) / aligned
        yield f"rows of {name}: even {half:.2f}, odd {less:.2f} of the aligned rate ({sweep.sum()} rows)"


def report_others() -> Iterator[str]:
    """The catalog's laws on sources that no constant was fitted to: predicted over measured time."""
    cookbook, law = load_products("cookbook", "a100", "bf16"), load_gemm_law("a100", "bf16")
    ratio = 1 + product_error(cookbook, law)
    aligned = (cookbook.n % 8 == 0) & (cookbook.k % 8 == 0)
    for low, high in ((0, 1e9), (1e9, 1e10), (1e10, 1e11), (1e11, 1e12), (1e12, 1e14)):
        rows = aligned & (cookbook.flop >= low) & (cookbook.flop < high)
        yield f"cookbook, aligned, {low:.0e} to {high:.0e} FLOP: {np.median(ratio[rows]):.2f} ({rows.sum()} rows)"
    yield f"cookbook, unaligned: {np.median(ratio[~aligned]):.2f} ({(~aligned).sum()} rows)"
    for name, precision in (*MEASURED[:2], *MEASURED[3:], *(("b200", p) for p in ("bf16", "fp8")), ("gb200", "bf16")):
        best = load_products("ml-engineering", name, precision)  # nothing quantised
        ratio = gemm_s(best.m, best.n, best.k, load_gemm_law(name, precision)) / best.time_s
        yield f"best shape, {name} {precision}: {ratio[0]:.2f}"


def _summary(error: Floats) -> str:
    median, p90 = np.quantile(np.abs(error), (0.5, 0.9))
    return f"median {median:.3f} p90 {p90:.3f}"


def report() -> Iterator[str]:
    """Everything."""
    for accelerator, precision in MEASURED:
        yield from report_fit(accelerator, precision)
    yield from report_unaligned()
    yield from report_others()


if __name__ == "__main__":
    print("\n".join(report()))  # noqa: T201  # a benchmark prints its result
