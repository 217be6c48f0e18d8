"""Pictures of one sweep: how the best grew, what memory it takes, which choices mattered, how predictions did."""
