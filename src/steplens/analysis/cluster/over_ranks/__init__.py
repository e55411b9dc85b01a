"""What is asked of each rank in small and then laid beside that of the others: idle gaps, kernels, operators."""
