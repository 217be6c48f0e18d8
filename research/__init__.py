"""Scripts that measure and that fit constants; the program imports nothing from here."""
