"""The memory timeline of ``torch.profiler``, and its picture."""
