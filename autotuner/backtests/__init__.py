"""Replays tables of measured runs, published or one's own, against the cost model and the sampler."""
