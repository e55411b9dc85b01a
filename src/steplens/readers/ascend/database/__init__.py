"""The databases of the Ascend PyTorch Profiler and of CANN."""
