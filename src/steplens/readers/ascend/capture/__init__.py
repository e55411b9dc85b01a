"""Raw data of the Ascend PyTorch Profiler: the records of the framework and the device data that CANN exported."""
