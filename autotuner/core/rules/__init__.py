"""Rules that decide which layouts can run, and the reasons why other layouts cannot run."""
