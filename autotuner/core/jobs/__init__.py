"""What is given while layouts are chosen: model, cluster, workload, software, and what was measured of a device."""
