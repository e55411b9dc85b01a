"""Memory: growth, large blocks, stalls of the allocator."""
