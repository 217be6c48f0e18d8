"""Results of a sweep: the best layout, the choices that matter, failures, and the accuracy of predictions."""
