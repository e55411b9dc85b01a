"""PyTorch's data loaders and their workers."""
