"""Pipelines over links that are not alike: who sends what over which, and what a step of it takes."""
