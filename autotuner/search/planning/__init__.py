"""Plans: whole clusters, layouts for each phase of a job, candidates of optimizer studies."""
