"""Ray: jobs by the Jobs API over HTTP, each with a driver on the cluster that starts its nodes in a placement group."""
