"""Databases of the Ascend PyTorch Profiler's layout."""
