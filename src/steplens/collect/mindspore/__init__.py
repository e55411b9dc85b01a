"""Records MindSpore on a CPU, under the interfaces of MindSpore's own profilers; ``steplens.mindspore`` is its public face."""
