"""Pipeline schedules as lists of actions: built, printed, parsed, simulated, planned around slow links."""
