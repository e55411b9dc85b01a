"""Data loaders and data pipelines."""
