"""Engines that run jobs on other machines (Slurm, Kubernetes, Ray), and one that emulates nodes by local processes."""
