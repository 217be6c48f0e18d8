"""Rules that decide which layouts can run, with the reasons why others cannot."""
