"""torchtitan: TOML configurations until release 0.2, Python modules from 0.3, with the same settings."""
