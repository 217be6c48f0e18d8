"""Slurm: jobs by sbatch, states by squeue, reports by files in a folder that nodes and service share."""
