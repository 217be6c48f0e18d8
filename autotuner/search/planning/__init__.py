"""Plans: comparisons of whole clusters, layouts for each phase of a job, and candidates of optimizer studies."""
