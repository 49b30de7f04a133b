"""The lab itself: data, recipes, training, scaling laws, jobs and the store. Knows nothing of Dagster."""
