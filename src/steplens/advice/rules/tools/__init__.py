"""What rules of several subjects share: rows of tasks, what slows a pipeline, units."""
