"""What is said of a model beside its predictions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.catalog.load import load_model
from autotuner.costmodel.columns import LayoutColumns
from autotuner.domain.jobs.calibration import Calibration
from autotuner.domain.jobs.link_health import LinkHealth
from autotuner.domain.jobs.model import LinearAttention
from autotuner.domain.layouts.choice import P2PTransport
from autotuner.domain.layouts.layout import Layout
from autotuner.search.text.caveats import approximations, caveats
from tests.builders import big_job, llama_70b


def test_a_plain_model_is_priced_as_it_is() -> None:
    assert approximations(llama_70b()) == ()


def test_what_shapes_tell_is_said_whoever_described_them() -> None:
    linear = LinearAttention(num_key_heads=2, num_value_heads=4, key_head_dim=16, value_head_dim=8)
    (sentence,) = approximations(llama_70b(linear_attention=linear, num_linear_layers=60))
    assert sentence.startswith("60 of 80 layers attend linearly")
    (sentence,) = approximations(llama_70b(parallel_blocks=True))
    assert "half of the predicted collectives" in sentence
    assert any("sinks" in sentence for sentence in approximations(load_model("gpt-oss-20b")))


def test_mfu_is_said_to_count_keys_outside_of_windows_where_there_are_any() -> None:
    job = replace(big_job(), model=llama_70b(attention_window=1024, num_windowed_layers=40))
    x = LayoutColumns.from_layouts([Layout()])
    assert any("40 of 80 layers see 1,024" in sentence for sentence in caveats(job, x))
    short = replace(job, workload=replace(job.workload, seq_len=2048))
    assert not any("see 1,024" in sentence for sentence in caveats(short, x))


def test_an_answer_says_what_its_model_says_of_itself() -> None:
    job = replace(big_job(), model=llama_70b(approximations=("its tower is not counted",)))
    assert "its tower is not counted" in caveats(job, LayoutColumns.from_layouts([Layout()]))


def test_links_that_a_profile_measured_are_named_with_where_and_when() -> None:
    job = big_job()
    measured = replace(job.cluster.inter_node_link, source="2 nodes, 2026-11-22")
    x = LayoutColumns.from_layouts([Layout()])
    said = "links between nodes (2 nodes, 2026-11-22) are as measured on h100:64"
    assert said in caveats(replace(job, cluster=replace(job.cluster, inter_node_link=measured)), x)
    assert not any("as measured on" in sentence for sentence in caveats(job, x))


@pytest.mark.parametrize(
    ("num_runs", "num_trials", "num_sweeps", "words"),
    [
        (2, 0, 0, "2 measured runs"),
        (34, 34, 5, "34 trials of 5 sweeps"),
        (2, 1, 1, "1 trial of 1 sweep and 1 measured run"),
    ],
)
def test_a_calibration_says_what_it_is_from(num_runs: int, num_trials: int, num_sweeps: int, words: str) -> None:
    known = Calibration(factor=1.07, deviation=0.03, num_runs=num_runs, num_trials=num_trials, num_sweeps=num_sweeps)
    said = caveats(replace(big_job(), calibration=known), LayoutColumns.from_layouts([Layout()]))
    assert f"calibrated on {words}: factor 1.07 ± 4 %" in said


def test_links_that_ail_are_said_to_be_assumed_or_measured_and_delegates_to_be_borrowed() -> None:
    links = (LinkHealth(ends=(2, 3), delay_s=0.06), LinkHealth(ends=(0, 1), delay_s=0.01, source="today"))
    job = replace(big_job(), cluster=replace(big_job().cluster, link_health=links))
    delegated = Layout(pipeline_parallel_degree=2, p2p_transport=P2PTransport.DELEGATED)
    said = caveats(job, LayoutColumns.from_layouts([delegated]))
    assert "link 2_3 60 ms late: assumed, not measured" in said
    assert "link 0_1 10 ms late: as measured (today)" in said
    assert any("delegates" in sentence for sentence in said)
    assert not any("delegates" in sentence for sentence in caveats(job, LayoutColumns.from_layouts([Layout()])))
