"""Bytes a rank holds at its peak."""
