"""Pipeline schedules as lists of actions: builders, parser, simulator, and a planner for slow links."""
