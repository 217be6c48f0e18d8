"""What is predicted, tried and found: predictions, trials, sweeps, their objective and their loss gates."""
