"""What each command does; it imports what it runs when it runs, so that `--help` answers at once."""
