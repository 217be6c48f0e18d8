"""Posts announcements of outcomes to webhooks: what is said, how it is signed, where it may go, when to try again."""
