"""Rules about Ascend and CUDA devices (docs/advice_devices.md)."""
