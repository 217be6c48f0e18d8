"""Durable runs: the contract of a kind of run, the workers that carry runs out, and every kind of run."""
