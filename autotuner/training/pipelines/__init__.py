"""Pipelines whose order can change between steps and whose sends need not wait for a slow link."""
