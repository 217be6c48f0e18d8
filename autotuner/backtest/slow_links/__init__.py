"""Iteration times of pipelines some of whose links are slow, predicted by the schedule simulator and judged."""
