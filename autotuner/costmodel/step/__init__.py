"""Time of a whole optimizer step, by part."""
