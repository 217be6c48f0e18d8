"""Reading a config.json of each family; ``configs`` holds the facts that are read and nothing else."""
