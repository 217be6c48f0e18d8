"""What follows once a layout is in use: nightly challenges, gates of changes, and who hears of their outcomes."""
