"""Bytes that a rank holds at its peak."""
