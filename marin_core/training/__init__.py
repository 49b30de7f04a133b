"""Training: a TrainPlan and a mixture become a Levanter run, resumable, with metrics and a checkpoint."""
