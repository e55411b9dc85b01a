"""Data loaders and data pipelines: batches, stages, queues, and what the steps wait for."""
