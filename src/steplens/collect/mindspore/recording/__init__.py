"""What happens in the training process while a window is open: operators, steps, the data pipeline, Python calls, marks."""
