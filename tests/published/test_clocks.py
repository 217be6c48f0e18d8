"""The clocks of the catalog that no published run could fit, beside the law of ``research.clocks``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.catalog.hardware import accelerator_facts, load_accelerator
from research.clocks import CHIPS, sustained_share

H100 = load_accelerator("h100")


def test_less_power_is_a_lower_clock_enough_is_the_whole_and_the_fitted_device_keeps_what_was_fitted() -> None:
    assert sustained_share(H100, H100, 155.0) == pytest.approx(H100.sustained_share, rel=1e-12)  # rounding
    shares = [sustained_share(replace(H100, power_w=watts), H100, 155.0) for watts in (350.0, 500.0, 700.0, 2000.0)]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


NOT_FITTED = [name for chip in CHIPS for name in chip.others if accelerator_facts(name)["sustained_share"].borrowed]


@pytest.mark.parametrize("name", NOT_FITTED)
def test_a_clock_that_nobody_fitted_is_about_that_of_its_power(name: str) -> None:
    """Within 10 %: what fits to few runs may move a device by."""
    device, chip = load_accelerator(name), next(chip for chip in CHIPS if name in chip.others)
    expected = sustained_share(device, load_accelerator(chip.fitted), chip.idle_w)
    assert device.sustained_share == pytest.approx(expected, rel=0.10)
