from __future__ import annotations

import pytest

from autotuner.core.choices import Precision
from autotuner.core.errors import InvalidInput
from tests.builders import cpu_cluster, h100


def test_hardware_without_a_format_does_not_offer_it() -> None:
    assert cpu_cluster().accelerator.precisions == (
        Precision.FP32,
        Precision.BF16,
        Precision.FP8_EMULATED,
    )
    assert h100().precisions == tuple(p for p in Precision if p != Precision.NVFP4)


@pytest.mark.parametrize("precision", list(Precision))
def test_each_format_has_its_own_peak(precision: Precision) -> None:
    peaks = {Precision.FP32: 67e12, Precision.BF16: 989.4e12, Precision.FP8: 1978.9e12}
    peaks[Precision.FP8_EMULATED] = peaks[Precision.BF16]  # what its products are multiplied in
    peaks[Precision.NVFP4] = 9000e12
    assert h100(fp4_flop_per_s=9000e12).peak_flop_per_s(precision) == peaks[precision]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("memory_bytes", 0),
        ("fp32_flop_per_s", 0.0),
        ("power_w", -1.0),
        ("kind", "tpu"),
        ("attention_kernels", ()),
        ("sustained_share", 0.0),
        ("sustained_share", 1.1),
        ("fp8_sustained_share", 0.0),
        ("fp4_sustained_share", 1.1),
        ("kernel_launch_s", -1e-6),
    ],
)
def test_an_impossible_accelerator_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        h100(**{field: value})
    assert caught.value.field == field


def test_the_reference_of_a_gpu_is_its_bf16_peak_or_fp32_without_bf16_and_of_a_core_its_fp32_rate() -> None:
    assert h100().reference_flop_per_s == h100().bf16_flop_per_s
    assert h100(bf16_flop_per_s=0.0, fp8_flop_per_s=0.0).reference_flop_per_s == h100().fp32_flop_per_s
    core = cpu_cluster().accelerator
    assert core.reference_flop_per_s == core.fp32_flop_per_s
