"""What Prometheus is told: of requests, of the event loop, and of what is stored."""
