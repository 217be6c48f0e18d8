"""The Slurm engine on a real Slurm."""
