"""Baselines: sides of comparisons that were measured, kept by name in a folder or behind a URL."""
