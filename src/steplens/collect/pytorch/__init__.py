"""PyTorch's profiler taken through windows: schedule, plan, window, saving."""
