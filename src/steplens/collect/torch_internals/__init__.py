"""What of PyTorch has to be watched or replaced: threads, backward passes, modules, collections of garbage."""
