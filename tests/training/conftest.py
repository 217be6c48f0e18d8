"""A group of one rank and a single torch thread, as the tests of the trial job have them."""

from tests.trials.conftest import alone

__all__ = ["alone"]
