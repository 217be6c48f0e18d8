"""Laws of kernels, and constants that are borrowed."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from importlib.resources import files

import pytest

from autotuner.catalog.hardware import accelerators, load_accelerator, load_cluster
from autotuner.catalog.kernels import borrowed_facts, kernels_for
from autotuner.core.accelerator import MeasuredAttention, MeasuredGemm
from autotuner.core.choices import AttentionKernel, Precision
from autotuner.costmodel.layer.attention import AttentionShape, attention_s
from autotuner.costmodel.layer.matrix_products import gemm_s
from tests.builders import cpu_cluster, h100
from tests.cases import each

TABLES = tomllib.loads(files("autotuner.catalog").joinpath("kernels.toml").read_text(encoding="utf-8"))


@each("name", accelerators())
def test_every_format_and_kernel_of_an_accelerator_has_a_law(name: str) -> None:
    accelerator = load_accelerator(name)
    laws = kernels_for(accelerator)
    assert tuple(laws.gemm) == tuple(laws.attention) == accelerator.precisions
    for law in laws.attention.values():
        assert set(accelerator.attention_kernels) <= {*law.fused, *law.unfused}
        assert not law.fused.keys() & law.unfused.keys()


@pytest.mark.parametrize("kind", ["cuda", "rocm", "cpu"])
def test_an_accelerator_that_a_user_describes_takes_the_default_of_its_kind(kind: str) -> None:
    described = h100(name="mine", kind=kind)
    laws = kernels_for(described)
    assert laws.gemm[Precision.BF16].peak_flop_per_s == described.bf16_flop_per_s


def test_a_described_accelerator_takes_the_laws_of_its_kind_at_its_own_rates() -> None:
    changes = {"bf16_flop_per_s": 2 * 989.4e12, "memory_bandwidth_bytes_per_s": 2 * 3.35e12}
    once, twice = (kernels_for(a).gemm[Precision.BF16] for a in (h100(name="a"), h100(name="b", **changes)))
    latency_s = once.latency_s
    for m in (64, 8192):  # limited by memory, and by the products
        assert gemm_s(m, 8192, 8192, once) - latency_s == pytest.approx(2 * (gemm_s(m, 8192, 8192, twice) - latency_s))


def test_formats_take_the_laws_that_their_hardware_gives_them() -> None:
    laws = kernels_for(load_accelerator("h100"))
    assert laws.attention[Precision.FP8].products == laws.gemm[Precision.BF16]
    wider = kernels_for(load_accelerator("b200")).gemm
    assert wider[Precision.NVFP4].prologue == wider[Precision.FP8].prologue != wider[Precision.BF16].prologue
    emulated = kernels_for(load_accelerator("a100")).gemm
    assert emulated[Precision.FP8_EMULATED] == emulated[Precision.BF16]
    device = replace(load_accelerator("b200"), sustained_share=0.8, fp8_sustained_share=0.7)
    laws = kernels_for(device)
    assert [laws.gemm[p].sustained_share for p in (Precision.BF16, Precision.FP8, Precision.NVFP4)] == [0.8, 0.7, 0.8]
    assert laws.attention[Precision.FP8].products.sustained_share == 0.8
    hopper, blackwell = (kernels_for(load_accelerator(name)).gemm for name in ("h100", "b200"))
    assert hopper[Precision.FP8].promoted_share < blackwell[Precision.FP8].promoted_share == 1.0
    assert Precision.NVFP4 not in hopper
    four, eight = blackwell[Precision.NVFP4], blackwell[Precision.FP8]
    assert eight.peak_flop_per_s * eight.peak_share < four.peak_flop_per_s * four.peak_share
    assert four.operand_bytes == 0.5
    law = kernels_for(load_accelerator("h100")).gemm[Precision.FP8]
    assert law.rowwise_share < 1.0
    assert law.blockwise_share < 1.0


def test_a_newer_flash_attention_is_never_slower_on_the_device_it_was_made_for() -> None:
    h100_law = kernels_for(load_accelerator("h100")).attention[Precision.BF16]
    order = (AttentionKernel.FLASH_1, AttentionKernel.FLASH, AttentionKernel.FLASH_3)
    shares = [[one_pass.product_share for one_pass in h100_law.fused[kernel]] for kernel in order]
    assert shares == sorted(shares)


@pytest.mark.parametrize(("kernel", "like"), [(AttentionKernel.CUDNN, AttentionKernel.FLASH_3)])
def test_a_kernel_taken_equal_to_another_has_its_law(kernel: AttentionKernel, like: AttentionKernel) -> None:
    fused = kernels_for(load_accelerator("h100")).attention[Precision.BF16].fused
    assert fused[kernel] == fused[like]


def test_blackwell_is_held_up_by_exponentials_and_blackwell_ultra_is_not() -> None:
    shape = AttentionShape(batch=4, num_heads=32, num_kv_heads=8, head_dim=128, query_len=16384, key_len=16384)
    flop = 2 * 2 * 4 * 32 * 128 * 16384 * 16384 / 2
    rates = {}
    for name in ("h100", "b200", "b300"):
        law = kernels_for(load_accelerator(name)).attention[Precision.BF16]
        rates[name] = flop / float(attention_s(shape, AttentionKernel.CUDNN, law)[0])
    # FlashAttention 4's abstract: 1,613 TFLOP/s, up to 1.3 times cuDNN 9.13; 10 %: the best shape is not named
    assert rates["b200"] == pytest.approx(1613e12 / 1.3, rel=0.10)
    assert rates["h100"] < rates["b200"] < rates["b300"]


def test_flex_attention_is_as_much_slower_than_flash_attention_2_as_its_authors_say() -> None:
    law = kernels_for(load_accelerator("a100")).attention[Precision.BF16]
    shape = AttentionShape(batch=1, num_heads=32, num_kv_heads=8, head_dim=128, query_len=8192, key_len=8192)
    flash, flex = (attention_s(shape, kernel, law) for kernel in (AttentionKernel.FLASH, AttentionKernel.FLEX))
    # both directions are limited by what they compute; rounding
    assert [float(a / b) for a, b in zip(flash, flex, strict=True)] == pytest.approx([0.9, 0.85], rel=1e-12)


def test_every_table_of_constants_names_sources_that_are_dated() -> None:
    sources = TABLES["sources"]
    tables = [
        TABLES["num_multiprocessors"],
        *TABLES["unfused"].values(),
        *(table for device in TABLES["device"].values() for table in device.get("gemm", {}).values()),
        *(table for device in TABLES["device"].values() for table in device.get("attention", {}).values()),
        *(table for device in TABLES["device"].values() for table in device.get("like", {}).values()),
    ]
    named = [table["source"] for table in tables] + [
        s for room in ("tiling", "narrow") for table in TABLES[room].values() for s in table["sources"]
    ]
    assert set(named) == set(sources)
    assert all(source["title"] and source["date"] for source in sources.values())


def test_laws_take_the_shares_that_the_device_was_measured_at() -> None:
    core = cpu_cluster().accelerator
    measured = replace(
        core,
        measured_gemm=(MeasuredGemm(precision=Precision.FP32, peak_share=0.5),),
        measured_attention=(
            MeasuredAttention(
                kernel=AttentionKernel.FLASH, precision=Precision.FP32, forward_share=0.6, backward_share=0.4
            ),
        ),
    )
    before, after = kernels_for(core), kernels_for(measured)
    assert after.gemm[Precision.FP32].peak_share == 0.5
    assert after.gemm[Precision.BF16] == before.gemm[Precision.BF16]
    forward, backward = after.attention[Precision.FP32].fused[AttentionKernel.FLASH]
    # flash skips what is masked, half of all pairs, and its law counts the rest
    assert (forward.product_share, backward.product_share) == (0.3, 0.2)
    math = after.attention[Precision.FP32].fused[AttentionKernel.MATH]
    assert math == before.attention[Precision.FP32].fused[AttentionKernel.MATH]


BF16, FLASH, CUDNN = (Precision.BF16,), (AttentionKernel.FLASH,), (AttentionKernel.CUDNN,)


def test_a_device_says_what_it_borrows_from_which_other_and_nothing_that_was_measured_on_itself() -> None:
    assert borrowed_facts(load_cluster("h100:8"), (Precision.BF16, Precision.FP8), FLASH) == ()
    facts = " ".join(borrowed_facts(load_cluster("gb200:4"), (Precision.BF16, Precision.NVFP4), CUDNN))
    for what in ("products in nvfp4 (as in fp8)", "cudnn attention (as on b200)"):
        assert what in facts
    facts = " ".join(borrowed_facts(load_cluster("gh200-144gb:4"), BF16, FLASH))
    assert "clock (follows from its power limit)" in facts
    one, two = (borrowed_facts(load_cluster(name), BF16, FLASH) for name in ("h100:8", "h100:16"))
    assert not one
    assert two == ("collectives over ndr400 (as on 4 nodes of A100)",)


def test_a_described_device_borrows_kernels_but_for_what_its_profile_measured() -> None:
    cluster = replace(load_cluster("h100:8"), accelerator=h100(name="mine"))
    expected = ("matrix products in bf16 (as on h100)", "flash attention (as on h100)")
    assert borrowed_facts(cluster, BF16, FLASH) == expected
    measured = h100(
        name="mine",
        measured_gemm=(MeasuredGemm(precision=Precision.BF16, peak_share=0.7),),
        measured_attention=(
            MeasuredAttention(
                kernel=AttentionKernel.FLASH, precision=Precision.BF16, forward_share=0.4, backward_share=0.3
            ),
        ),
    )
    assert borrowed_facts(replace(load_cluster("h100:8"), accelerator=measured), BF16, FLASH) == ()


def test_every_accelerator_can_say_what_it_borrows() -> None:
    for name in accelerators():
        cluster = load_cluster(f"{name}:16x1")
        device = cluster.accelerator
        facts = borrowed_facts(cluster, device.precisions, device.attention_kernels)
        assert all(fact.endswith(")") and "()" not in fact for fact in facts)
