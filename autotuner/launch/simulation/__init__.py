"""What a simulated trial comes to: scenarios, seeded luck, and what a layout takes if the cost model is right."""
