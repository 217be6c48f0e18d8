"""Slow and dead links, emulated in software: what befalls a trial's links step by step."""
