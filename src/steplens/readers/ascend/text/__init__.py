"""The text files of results of the Ascend PyTorch Profiler."""
