"""What the project talks about: frozen values, standard library only, no clock, no network, no randomness."""
