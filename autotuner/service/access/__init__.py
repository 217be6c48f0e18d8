"""Who is let in: tokens and their secrets, sessions of browsers, a proxy that vouches for callers."""
