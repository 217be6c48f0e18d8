"""Engines that run jobs on other machines: Slurm, Kubernetes, Ray, and nodes that are pretended."""
