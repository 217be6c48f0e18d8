"""Descriptions of published sources."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from autotuner.backtest import words
from autotuner.backtest.sources import Source, source_of
from autotuner.catalog.load import load_link, load_stack, stacks
from autotuner.domain.jobs.stack import Stack

PUBLISHED = Path(__file__).parents[2] / "published"

BEGINNINGS = (
    "arXiv:2311.05610",
    "HF ultrascale-playbook",
    "github VIA-Research/vTrain",
    "github mosaicml/llm-foundry",
    "github NVIDIA/Megatron-LM",
    "arXiv:2104.04473",
    "arXiv:2205.05198",
    "arXiv:2401.10241",
    "github NVIDIA/dgxc-benchmarking",
    "github pytorch/torchtitan",
)


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_a_source_is_known_by_its_beginning_and_nothing_but_that(beginning: str) -> None:
    known = source_of(f"{beginning} and the file in it")
    assert beginning in known.match
    assert source_of(f"as in {beginning}") == Source()


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_every_word_of_a_description_means_something(beginning: str) -> None:
    source = source_of(beginning)
    assert load_stack(source.stack).name == source.stack
    words.shard_level(source.sharding)
    words.recompute(source.recompute)
    words.attention_kernel(source.attention, source.flash)
    assert source.inter_node_link is None or load_link(source.inter_node_link)


def test_every_stack_of_the_catalog_made_a_published_table_or_is_a_default() -> None:
    defaults = {Stack().name, Source().stack}
    assert {source_of(beginning).stack for beginning in BEGINNINGS} | defaults == set(stacks())


def test_every_published_run_is_of_a_described_source() -> None:
    for path in PUBLISHED.glob("*.csv"):
        with path.open(encoding="utf-8") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
        if "zero_or_fsdp" in rows[0]:  # a table of runs
            assert all(source_of(row["source"]).match for row in rows), path.name


def test_an_unknown_source_gets_typical_software_and_the_usual_network() -> None:
    source = source_of("my own cluster")
    assert source.stack == "typical"
    assert (source.inter_node_link, source.oversubscription, source.congestion) == (None, 1.0, None)
