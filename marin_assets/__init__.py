"""The Dagster code location: assets, partitions, checks. Thin: each body asks `lab.Lab` for one artifact."""
