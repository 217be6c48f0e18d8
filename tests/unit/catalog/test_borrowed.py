"""What an answer borrows."""

from __future__ import annotations

from dataclasses import replace

from autotuner.catalog.borrowed import borrowed_facts
from autotuner.catalog.load import accelerators, load_cluster
from autotuner.core.accelerator import MeasuredAttention, MeasuredGemm
from autotuner.core.choices import AttentionKernel, Precision
from tests.builders import h100

BF16, FLASH, CUDNN = (Precision.BF16,), (AttentionKernel.FLASH,), (AttentionKernel.CUDNN,)


def test_what_was_measured_on_the_device_itself_is_not_borrowed() -> None:
    assert borrowed_facts(load_cluster("h100:8"), (Precision.BF16, Precision.FP8), FLASH) == ()


def test_a_device_that_nobody_benchmarked_says_whose_products_and_attention_it_takes() -> None:
    facts = " ".join(borrowed_facts(load_cluster("gb200:4"), (Precision.BF16, Precision.NVFP4), CUDNN))
    for what in ("products in nvfp4 (as in fp8)", "cudnn attention (as on b200)"):
        assert what in facts


def test_a_device_whose_steps_nobody_compared_says_where_its_clock_is_from() -> None:
    facts = borrowed_facts(load_cluster("gh200-144gb:4"), BF16, FLASH)
    assert "clock (follows from its power limit)" in " ".join(facts)


def test_a_network_is_named_where_the_job_uses_it() -> None:
    one, two = (borrowed_facts(load_cluster(name), BF16, FLASH) for name in ("h100:8", "h100:16"))
    assert not one
    assert two == ("collectives over ndr400 (as on 4 nodes of A100)",)


def test_a_device_that_a_user_describes_borrows_its_kernels_and_has_the_clock_of_the_description() -> None:
    cluster = replace(load_cluster("h100:8"), accelerator=h100(name="mine"))
    expected = ("matrix products in bf16 (as on h100)", "flash attention (as on h100)")
    assert borrowed_facts(cluster, BF16, FLASH) == expected


def test_what_a_profile_measured_is_not_borrowed() -> None:
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
