"""The parts that only a running service has: settings, logins, webhooks, and subprocesses for long computations."""
