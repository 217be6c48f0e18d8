"""Who may do what, how much of it, and what they did."""
