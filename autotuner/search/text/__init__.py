"""Words and numbers of sentences that people read."""
