"""Durable runs: what a kind of run is, the workers that see runs through, and the kinds."""
