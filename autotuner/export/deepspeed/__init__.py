"""DeepSpeed: ``ds_config.json``, both directions."""
