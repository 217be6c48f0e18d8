"""Where to invest: whole clusters compared for one training run, and what would make that decision surer."""
