"""MFU gates: asked for, measured or predicted, concluded and told."""
