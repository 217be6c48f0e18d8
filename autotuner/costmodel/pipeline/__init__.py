"""Which layers a pipeline rank holds, and how long it waits for the others."""
