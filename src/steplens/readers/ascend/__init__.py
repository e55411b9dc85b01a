"""What the Ascend PyTorch Profiler and CANN leave, raw or analysed."""
