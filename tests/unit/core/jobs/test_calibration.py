from __future__ import annotations

import pytest

from autotuner.core.jobs.calibration import Calibration, PartFactor
from autotuner.core.wire import dumps, loads
from autotuner.errors import InvalidInput

SLOW_PRODUCTS = Calibration(
    factor=1.1,
    deviation=0.02,
    num_runs=9,
    parts=(PartFactor(part="matrix_s", factor=1.2, deviation=0.05),),
    correlations=((1.0, -0.5), (-0.5, 1.0)),
)


def test_a_part_takes_its_own_factor_and_that_of_the_whole() -> None:
    assert SLOW_PRODUCTS.of("matrix_s") == pytest.approx(1.32)
    assert SLOW_PRODUCTS.of("optimizer_s") == 1.1


def test_correlations_must_be_of_the_parts_and_the_whole() -> None:
    with pytest.raises(InvalidInput, match="2 rows of 2 numbers"):
        Calibration(factor=1.1, deviation=0.02, num_runs=9, parts=SLOW_PRODUCTS.parts)


def test_a_calibration_by_parts_travels_as_json() -> None:
    assert loads(Calibration, dumps(SLOW_PRODUCTS)) == SLOW_PRODUCTS


def test_one_that_was_stored_before_parts_were_known_is_still_read() -> None:
    old = '{"schema_version":1,"factor":1.1,"deviation":0.02,"num_runs":9}'
    assert loads(Calibration, old) == Calibration(factor=1.1, deviation=0.02, num_runs=9)
