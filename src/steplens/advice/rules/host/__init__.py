"""What Python does between operators: reads, collections of garbage, compiling, waiting."""
