"""What is measured of a step, and of the machine under it."""
