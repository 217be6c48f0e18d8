from __future__ import annotations

import re
from dataclasses import replace

import pytest

from api.dashboard.charts.batch_ways import batch_ways_picture, length_histogram
from autotuner.domain.jobs.lengths import LengthDistribution
from autotuner.domain.layouts.layout import Layout
from autotuner.search.explain.batch_ways import batch_ways
from tests.builders import big_job
from tests.unit.batches.samsung import SEQ_LEN, wikipedia

JOB = replace(big_job(), workload=replace(big_job().workload, seq_len=SEQ_LEN, lengths=wikipedia()))


def test_a_histogram_says_how_long_sequences_are_and_is_drawn_for_desk_and_phone() -> None:
    markup = length_histogram(wikipedia())
    assert markup.count('aria-label="Sequences by length, up to 512 tokens, 252 on average"') == 2
    wide = markup.split("hide-wide")[0]
    heights = [float(height) for height in re.findall(r'height="([\d.]+)" class="forward"', wide)]
    assert len(heights) == 32
    assert heights[-1] == max(heights)  # what is cut off lies at the longest


def test_few_lengths_have_a_bar_each() -> None:
    wide = length_histogram(LengthDistribution.of([1, 3])).split("hide-wide")[0]
    assert len(re.findall('class="forward"', wide)) == 3


def test_real_tokens_padding_and_waiting_follow_each_other_in_a_bar() -> None:
    ways = batch_ways(Layout(data_parallel_replicate_degree=64, micro_batch_size=4), JOB)
    markup = batch_ways_picture(ways)
    assert ways[0].sentence in markup
    wide = markup.split("hide-wide")[0]
    boxes = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="[\d.]+" class="(\w+)"', wide)
    real, padding, waiting = ((float(x), float(width)) for x, width, _ in boxes[:3])
    assert [kind for _, _, kind in boxes[:3]] == ["forward", "other", "idle"]
    # coordinates are rounded to tenths
    assert padding[0] == pytest.approx(sum(real), abs=0.15)
    assert waiting[0] == pytest.approx(sum(padding), abs=0.15)
