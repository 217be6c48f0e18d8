"""Backtests: replay tables of measured runs, published or the user's own, against the cost model and the sampler."""
