"""torchtitan: TOML as far as 0.2, Python modules from 0.3; the same settings in both."""
