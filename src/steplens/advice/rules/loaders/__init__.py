"""PyTorch's data loaders."""
