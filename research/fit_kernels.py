"""Fits the constants of catalog/kernels.toml to published times of products and attention kernels.

``python -m research.fit_kernels`` prints, for each device and precision of tests/published/gemm_throughput.csv, the
constants and the relative error on the shapes they were fitted to, on left-out shapes (five times a fifth of the widths
``n``, whole) and by size of the product. Then it prints the rates of unaligned products, and the errors of the
catalog's laws on sources that were not used in any fit. Last, it prints the same for each fused kernel of
attention_throughput.csv, with panels of the papers' figures left out. It needs SciPy.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from autotuner.catalog.hardware import load_accelerator
from autotuner.catalog.kernels import kernels_for
from autotuner.core.choices import AttentionKernel, Precision
from autotuner.core.columns import Booleans, Floats, Integers
from autotuner.core.kernels import AttentionLaw, FusedPass, GemmLaw
from autotuner.costmodel.layer.attention import AttentionShape, attention_s
from autotuner.costmodel.layer.matrix_products import gemm_s

PUBLISHED = Path(__file__).parents[1] / "tests" / "published"


@dataclass(frozen=True, slots=True, kw_only=True)
class Products:
    """Measured times of matrix products (m, k) x (k, n), as columns with one element for each shape.

    All products have the same source, accelerator and precision. ``count`` is the number of products in one batched
    call.
    """

    count: Integers
    m: Integers
    n: Integers
    k: Integers
    time_s: Floats

    @property
    def flop(self) -> Floats:
        """Return the FLOP of each measured call: 2 * count * m * n * k."""
        return np.asarray(2.0 * self.count * self.m * self.n * self.k)

    def take(self, rows: Booleans) -> Products:
        """Return only the products for which the mask ``rows`` is True."""
        sizes = {name: getattr(self, name)[rows] for name in ("count", "m", "n", "k")}
        return Products(time_s=self.time_s[rows], **sizes)


def load_products(source: str, accelerator: str, precision: str) -> Products:
    """Return the published times of matrix products for one source, accelerator and precision.

    They are read from ``tests/published/gemm_throughput.csv``.
    """
    wanted = (source, accelerator, precision)
    rows = [r for r in _rows("gemm_throughput.csv") if (r["source"], r["accelerator"], r["precision"]) == wanted]
    sizes = {name: np.array([int(row[name]) for row in rows]) for name in ("count", "m", "n", "k")}
    return Products(time_s=np.array([float(row["time_us"]) for row in rows]) / 1e6, **sizes)


def load_gemm_law(accelerator: str, precision: str) -> GemmLaw:
    """Return the constants by which the catalog predicts the times of matrix products on this accelerator."""
    return kernels_for(load_accelerator(accelerator)).gemm[Precision.from_label(precision)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """The time that a benchmark of fp8 products needs in addition, because it also rounds an operand to fp8.

    The time is ``start_s`` plus ``s_per_element`` for each element of the (m, k) operand.
    """

    start_s: float = 0.0
    s_per_element: float = 0.0


CONVERSIONS = {
    ("h100-sxm", "fp8"): Conversion(start_s=6.3e-6, s_per_element=2.39e-12),
    ("h200", "fp8"): Conversion(start_s=7.7e-6, s_per_element=2.46e-12),
}
"""Conversions in aiconfigurator's benchmark, as ``python -m research.fit_kernels`` prints them; a training step
converts in another way (costmodel/layer/quantization.py)."""


def product_error(products: Products, law: GemmLaw, conversion: Conversion | None = None) -> Floats:
    """Return the relative error of the predicted time, predicted / measured - 1, for each matrix product.

    Args:
        products: The measured products.
        law: The constants of the prediction.
        conversion: Time of the benchmark for rounding the (m, k) operand; None: the benchmark does not round.
    """
    besides = conversion or Conversion()
    predicted_s = gemm_s(products.m, products.n, products.k, law, count=products.count)
    converted_s = besides.start_s + products.m * products.k * besides.s_per_element
    return np.asarray((predicted_s + converted_s) / products.time_s - 1)


def load_attention_law(accelerator: str) -> AttentionLaw:
    """Return the constants by which the catalog predicts the times of bf16 attention kernels on this accelerator."""
    return kernels_for(load_accelerator(accelerator)).attention[Precision.BF16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """One measurement of an attention kernel, read from a bar of a published figure.

    ``time_s`` is computed from the published FLOP/s. ``direction`` is the measured pass: forward, backward or both.
    ``panel`` names the part of the figure that shows the bar.
    """

    panel: tuple[str, ...]
    direction: str
    head_dim: int
    causal: bool
    shape: AttentionShape
    time_s: float


def load_speeds(accelerator: str, kernel: AttentionKernel) -> list[Speed]:
    """Return the published measurements of one attention kernel on one accelerator.

    They are read from ``tests/published/attention_throughput.csv``.
    """
    wanted = (accelerator, kernel.label)
    return [_speed(r) for r in _rows("attention_throughput.csv") if (r["accelerator"], r["kernel"]) == wanted]


def _speed(row: dict[str, str]) -> Speed:
    seq_len, heads, head_dim = int(row["seq_len"]), int(row["num_heads"]), int(row["head_dim"])
    batch, causal = int(row["micro_batch_size"]), row["causal"] == "1"
    times = {"forward": 1.0, "backward": 2.5, "both": 3.5}[row["pass"]] * (0.5 if causal else 1.0)
    return Speed(
        panel=(row["figure"], row["pass"], row["head_dim"], row["causal"]),
        direction=row["pass"],
        head_dim=head_dim,
        causal=causal,
        shape=AttentionShape(
            batch=batch, num_heads=heads, num_kv_heads=heads, head_dim=head_dim, query_len=seq_len, key_len=seq_len
        ),
        time_s=4 * batch * heads * head_dim * seq_len**2 * times / (float(row["tflops"]) * 1e12),
    )


def attention_error(speeds: Sequence[Speed], kernel: AttentionKernel, law: AttentionLaw) -> Floats:
    """Return the relative error of the predicted time, predicted / measured - 1, for each measurement of a kernel."""
    return np.array([_predicted_s(speed, kernel, law) / speed.time_s - 1 for speed in speeds])


def _predicted_s(speed: Speed, kernel: AttentionKernel, law: AttentionLaw) -> float:
    forward, backward = (replace(one, skips_masked=speed.causal) for one in law.fused[kernel])
    forward_s, backward_s = attention_s(speed.shape, kernel, replace(law, fused={kernel: (forward, backward)}))
    return float({"forward": forward_s, "backward": backward_s, "both": forward_s + backward_s}[speed.direction])


def _rows(file_name: str) -> Iterator[dict[str, str]]:
    with (PUBLISHED / file_name).open(encoding="utf-8") as file:
        yield from csv.DictReader(line for line in file if not line.startswith("#"))


MEASURED = (("a100-80gb", "bf16"), ("h100-sxm", "bf16"), ("h200", "bf16"), ("h100-sxm", "fp8"), ("h200", "fp8"))
FOLDS = 5
TRUSTED_ERROR = 0.05  # relative errors count squared below it and linearly above: single shapes are off by a third, and
# bars of figures were read by eye

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
"""Ranges for the benchmark's work outside an fp8 product. The start of its kernels cannot be separated from the latency
of the product, which is assumed to be that of bf16."""


def fit_gemm(products: Products, law: GemmLaw) -> dict[str, Any]:
    """Return the constants, by name, with which the predicted times of these matrix products have the least error.

    For fp8 products, the result includes the two constants of ``Conversion``: the benchmark also rounds an operand.

    Args:
        products: The measured products.
        law: Gives the constants that are not fitted.
    """
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
        return np.log1p(_product_error(products, law, constants(logarithms)))

    found = least_squares(error, start, bounds=(low, high), loss="soft_l1", f_scale=TRUSTED_ERROR)
    return constants(found.x)


def left_out_product_error(products: Products, law: GemmLaw) -> Floats:
    """Return predicted / measured time - 1 for each matrix product, predicted without the use of similar products.

    The widths ``n`` are divided into five sets. The products of each set are predicted with constants that were fitted
    to the products of the other four sets.
    """
    _, rank = np.unique(products.n, return_inverse=True)
    error = np.full(len(rank), np.nan)
    for fold in range(FOLDS):
        held = rank % FOLDS == fold
        constants = fit_gemm(products.take(~held), law)
        error[held] = _product_error(products.take(held), law, constants)
    return error


def _product_error(products: Products, law: GemmLaw, constants: dict[str, Any]) -> Floats:
    """Return the error of each product with these constants of the law and of the benchmark's conversions."""
    besides = {name: value for name, value in constants.items() if name in CONVERSION_RANGES}
    of_law = {name: value for name, value in constants.items() if name not in CONVERSION_RANGES}
    return product_error(products, replace(law, **of_law), Conversion(**besides))


SIZES: dict[str, Callable[[Products], Booleans]] = {
    "all": lambda p: np.full(len(p.m), True),
    "below 2e10 FLOP": lambda p: p.flop < 2e10,
    "m, n, k >= 4,096": lambda p: np.minimum(np.minimum(p.m, p.n), p.k) >= 4096,
}


def report_fit(accelerator: str, precision: str) -> Iterator[str]:
    """Yield lines with the fitted constants of matrix products on an accelerator, and the errors of the predictions."""
    law, products = load_gemm_law(accelerator, precision), load_products("aiconfigurator", accelerator, precision)
    constants = fit_gemm(products, law)
    yield f"{accelerator} {precision}: " + ", ".join(f"{key} = {value:.3g}" for key, value in constants.items())
    fitted, left_out = _product_error(products, law, constants), left_out_product_error(products, law)
    for size, chosen in SIZES.items():
        rows = chosen(products)
        yield f"  {size:18s} {rows.sum():4d} rows  fitted {_summary(fitted[rows])}  left out {_summary(left_out[rows])}"


def report_unaligned() -> Iterator[str]:
    """Yield lines that say how much slower matrix products are if a dimension is not a multiple of 8.

    Even and odd values of ``n`` and of ``k`` are compared with multiples of 8. The measurements are for an A100 in
    bf16.
    """
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
    """Yield lines with predicted / measured times of matrix products that no fit has used, by size or accelerator."""
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


def products_report() -> Iterator[str]:
    """Yield all lines of the report on matrix products: fits, unaligned products, and products that no fit has used."""
    for accelerator, precision in MEASURED:
        yield from report_fit(accelerator, precision)
    yield from report_unaligned()
    yield from report_others()


BACKWARD_SHARE = 0.75
"""Ratio of the rate of backward products to that of forward products, for papers that only measured both together:
FlashAttention 1 reaches 25 to 35 % of the peak backward and 30 to 50 % forward (arXiv 2307.08691, section 1)."""

BACKWARD_SOFTMAX = 2.0
"""Ratio of the backward to the forward cost of a score outside the products: the exponential is computed again, and the
gradient passes through it.

In separate fits, the ratio was 1.9 for FlashAttention 3 on an H100 and 2.2 for FlashAttention 2 on an A100."""

# least, first guess, most
SHARE, SOFTMAX_FLOP, OVERHEAD_KEYS = (0.05, 0.6, 1.0), (1.0, 80.0, 1000.0), (5.0, 100.0, 600.0)


def fit_attention(speeds: Sequence[Speed], kernel: AttentionKernel, law: AttentionLaw) -> AttentionLaw:
    """Return ``law`` with the constants of the kernel that predict its measured times with the least error."""
    apart = any(speed.direction != "both" for speed in speeds)
    ranges = (SHARE, OVERHEAD_KEYS, *((SHARE, OVERHEAD_KEYS, SOFTMAX_FLOP) if apart else ()))
    low, start, high = np.log(ranges).T

    def law_with(logarithms: Floats) -> AttentionLaw:
        # the exponential of a bound's logarithm may lie beyond it by a rounding
        values = np.minimum(np.exp(logarithms), np.array(ranges)[:, 2]).tolist()
        share, overhead, backward_share, backward_overhead, softmax = (
            values if apart else (*values, BACKWARD_SHARE * values[0], values[1], 0.0)
        )
        forward = FusedPass(product_share=share, softmax_flop_per_score=softmax, overhead_keys=overhead)
        backward = FusedPass(
            product_share=backward_share,
            softmax_flop_per_score=BACKWARD_SOFTMAX * softmax,
            overhead_keys=backward_overhead,
        )
        return replace(law, fused={kernel: (forward, backward)})

    def error(logarithms: Floats) -> Floats:
        return np.log1p(attention_error(speeds, kernel, law_with(logarithms)))

    return law_with(least_squares(error, start, bounds=(low, high), loss="soft_l1", f_scale=TRUSTED_ERROR).x)


def left_out_attention_error(speeds: Sequence[Speed], kernel: AttentionKernel, law: AttentionLaw) -> Floats:
    """Return predicted / measured time - 1 for each measurement, predicted without the use of similar measurements.

    A panel is a part of a published figure. The bars of each panel are predicted with constants that were fitted to the
    bars of all other panels. The errors are ordered by panel.
    """
    errors = []
    for panel in sorted({speed.panel for speed in speeds}):
        fitted = fit_attention([speed for speed in speeds if speed.panel != panel], kernel, law)
        errors.append(attention_error([speed for speed in speeds if speed.panel == panel], kernel, fitted))
    return np.concatenate(errors)


def attention_report() -> Iterator[str]:
    """Yield lines with the fitted constants and the errors of each attention kernel on A100 and H100."""
    for name in ("a100-80gb", "h100-sxm"):
        law = load_attention_law(name)
        for kernel in AttentionKernel:
            if speeds := load_speeds(name, kernel):
                fitted = fit_attention(speeds, kernel, law)
                yield f"{name} {kernel}, {len(speeds)} rows"
                yield from (f"  {_constants(one_pass)}" for one_pass in fitted.fused[kernel])
                yield f"  fitted   {_summary(attention_error(speeds, kernel, fitted))}"
                yield f"  left out {_summary(left_out_attention_error(speeds, kernel, law))}"


def _constants(one: FusedPass) -> str:
    return (
        f"product_share = {one.product_share:.3g}, softmax_flop_per_score = {one.softmax_flop_per_score:.3g}, "
        f"overhead_keys = {one.overhead_keys:.3g}"
    )


def main() -> None:
    """Print the fitted constants of matrix products and attention kernels, with the errors of the predicted times."""
    print(*products_report(), *attention_report(), sep="\n")  # noqa: T201


if __name__ == "__main__":
    main()
