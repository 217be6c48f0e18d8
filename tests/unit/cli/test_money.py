from __future__ import annotations

from pathlib import Path

import pytest

from autotuner.cli.money import objective_body, price_body
from autotuner.core.errors import InvalidInput, NotFound


def test_a_metric_alone_is_what_a_sweep_maximises() -> None:
    assert objective_body("tokens_per_joule") == {"metric": "tokens_per_joule"}


def test_a_profile_is_said_by_weights_which_are_one_where_none_stands() -> None:
    said = objective_body("mfu", "mfu=2, tokens_per_dollar")
    weights = [{"metric": "mfu", "weight": 2.0}, {"metric": "tokens_per_dollar", "weight": 1.0}]
    assert said == {"metric": "mfu", "profile": weights}


@pytest.mark.parametrize(
    ("profile", "told"),
    [
        ("mfo=1", "nearest legal value: mfu"),
        ("mfu=much", "mfu=1"),
        ("mfu=0", "above 0"),
        ("simplicity", "needs a rate"),
    ],
)
def test_a_profile_that_cannot_be_is_refused(profile: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        objective_body("mfu", profile)


def test_a_tariff_names_a_region_or_says_its_fields() -> None:
    assert price_body(None, None) == {}
    assert price_body(2.5, "France")["price_per_accelerator_hour"] == 2.5
    assert price_body(None, "france")["tariff"]["co2_kg_per_kwh"] == 0.044
    changed = price_body(None, '{"base": "sweden", "energy_price_per_kwh": 0.2}')["tariff"]
    assert (changed["co2_kg_per_kwh"], changed["energy_price_per_kwh"]) == (0.036, 0.2)


def test_a_tariff_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tariff.json"
    file.write_text('{"base": "france"}')
    assert price_body(None, str(file)) == price_body(None, "france")


def test_a_tariff_that_cannot_be_is_refused() -> None:
    with pytest.raises(NotFound, match="germany"):
        price_body(None, "germny")
    with pytest.raises(InvalidInput, match="energy_price_per_kwh"):
        price_body(None, '{"energy_price": 0.2}')
    with pytest.raises(InvalidInput, match="must be a region or JSON"):
        price_body(None, "{")
