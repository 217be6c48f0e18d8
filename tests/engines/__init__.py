"""Suites of real engines, which are installed, started and ended by the tests themselves."""
