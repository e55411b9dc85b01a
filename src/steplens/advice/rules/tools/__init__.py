"""What rules of several subjects share: rows of tasks, ranks beside each other, what a pipeline costs."""
