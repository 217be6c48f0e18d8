"""Examples in docstrings run, and print what they show."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

from documentation.reference.python import public_modules


@pytest.mark.parametrize(
    "package", ["autotuner.core", "autotuner.costmodel", "autotuner.schedules", "autotuner.training"]
)
def test_examples_of_a_package_print_what_they_show(package: str) -> None:
    found = [doctest.testmod(import_module(module)) for module in public_modules(package)]
    assert sum(one.failed for one in found) == 0
    assert sum(one.attempted for one in found) > 0
