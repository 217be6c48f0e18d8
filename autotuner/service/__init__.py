"""What only a running service has: settings, logins, posting, and processes beside it."""
