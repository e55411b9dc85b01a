"""Rules about Ascend and CUDA devices."""
