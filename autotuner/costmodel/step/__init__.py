"""Seconds of a whole optimizer step, by part."""
