"""Ids are short, safe in a path, and sort as they were made."""

from __future__ import annotations

import re

from autotuner.core.trial import trial_id
from autotuner.store.descriptions import new_id


def test_a_sweep_id_is_ten_random_base_32_characters() -> None:
    ids = {new_id("sw") for _ in range(100)}
    assert len(ids) == 100
    assert all(re.fullmatch(r"sw-[a-z2-7]{10}", sweep_id) for sweep_id in ids)


def test_trial_ids_of_a_sweep_sort_by_number() -> None:
    ids = [trial_id("sw-x", number) for number in (0, 9, 10, 999, 9999)]
    assert ids[1] == "sw-x-0009"
    assert ids == sorted(ids)
