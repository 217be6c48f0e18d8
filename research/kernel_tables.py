"""Published times of products and attention kernels, and how far the catalog's laws are from them."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autotuner.catalog.hardware import load_accelerator
from autotuner.catalog.kernels import kernels_for
from autotuner.core.choices import AttentionKernel, Precision
from autotuner.core.columns import Booleans, Floats, Integers
from autotuner.core.kernels import AttentionLaw, GemmLaw
from autotuner.costmodel.layer.attention import AttentionShape, attention_s
from autotuner.costmodel.layer.matrix_products import gemm_s

PUBLISHED = Path(__file__).parents[1] / "tests" / "published"


@dataclass(frozen=True, slots=True, kw_only=True)
class Products:
    """Measured products of one source, device and precision, as columns."""

    count: Integers
    m: Integers
    n: Integers
    k: Integers
    time_s: Floats

    @property
    def flop(self) -> Floats:
        """FLOP of each row."""
        return np.asarray(2.0 * self.count * self.m * self.n * self.k)

    def take(self, rows: Booleans) -> Products:
        """The rows that a mask picks."""
        sizes = {name: getattr(self, name)[rows] for name in ("count", "m", "n", "k")}
        return Products(time_s=self.time_s[rows], **sizes)


def load_products(source: str, accelerator: str, precision: str) -> Products:
    """The table's rows of that source, device and precision."""
    wanted = (source, accelerator, precision)
    rows = [r for r in _rows("gemm_throughput.csv") if (r["source"], r["accelerator"], r["precision"]) == wanted]
    sizes = {name: np.array([int(row[name]) for row in rows]) for name in ("count", "m", "n", "k")}
    return Products(time_s=np.array([float(row["time_us"]) for row in rows]) / 1e6, **sizes)


def load_gemm_law(accelerator: str, precision: str) -> GemmLaw:
    """The catalog's law."""
    return kernels_for(load_accelerator(accelerator)).gemm[Precision.from_label(precision)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What a benchmark measures besides the product: rounding the (m, k) operand, in kernels of its own."""

    start_s: float = 0.0
    s_per_element: float = 0.0


CONVERSIONS = {
    ("h100-sxm", "fp8"): Conversion(start_s=6.3e-6, s_per_element=2.39e-12),
    ("h200", "fp8"): Conversion(start_s=7.7e-6, s_per_element=2.46e-12),
}
"""Conversions of aiconfigurator's benchmark, as ``python -m research.fit_gemm`` prints them; a training step rounds
otherwise (costmodel/layer/quantization.py)."""


def product_error(products: Products, law: GemmLaw, conversion: Conversion | None = None) -> Floats:
    """Predicted over measured time, less 1."""
    besides = conversion or Conversion()
    predicted_s = gemm_s(products.m, products.n, products.k, law, count=products.count)
    converted_s = besides.start_s + products.m * products.k * besides.s_per_element
    return np.asarray((predicted_s + converted_s) / products.time_s - 1)


def load_attention_law(accelerator: str) -> AttentionLaw:
    """The catalog's, in bf16."""
    return kernels_for(load_accelerator(accelerator)).attention[Precision.BF16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """One bar of a figure; ``direction`` is forward, backward or both."""

    panel: tuple[str, ...]
    direction: str
    head_dim: int
    causal: bool
    shape: AttentionShape
    time_s: float


def load_speeds(accelerator: str, kernel: AttentionKernel) -> list[Speed]:
    """The table's rows of that device and kernel."""
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
    """Predicted over measured time, less 1."""
    return np.array([_predicted_s(speed, kernel, law) / speed.time_s - 1 for speed in speeds])


def _predicted_s(speed: Speed, kernel: AttentionKernel, law: AttentionLaw) -> float:
    forward, backward = (replace(one, skips_masked=speed.causal) for one in law.fused[kernel])
    forward_s, backward_s = attention_s(speed.shape, kernel, replace(law, fused={kernel: (forward, backward)}))
    return float({"forward": forward_s, "backward": backward_s, "both": forward_s + backward_s}[speed.direction])


def _rows(file_name: str) -> Iterator[dict[str, str]]:
    with (PUBLISHED / file_name).open(encoding="utf-8") as file:
        yield from csv.DictReader(line for line in file if not line.startswith("#"))
