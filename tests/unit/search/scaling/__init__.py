"""Small trials that stand for layouts of larger jobs."""
