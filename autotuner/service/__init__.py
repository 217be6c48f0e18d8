"""The parts that only a running service has: settings, logins, posting, and compute subprocesses."""
