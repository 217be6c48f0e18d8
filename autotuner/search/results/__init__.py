"""Results of a sweep: the answer and how sure it is, what mattered, what failed, how right predictions were."""
