"""Small trials that stand for layouts of larger jobs: which one, and what it measures of its target."""
