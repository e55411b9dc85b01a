"""Records the tasks of an Ascend NPU through CANN's own profiling library; knows no framework."""
