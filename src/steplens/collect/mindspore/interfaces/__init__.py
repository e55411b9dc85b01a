"""MindSpore's profilers as its users know them: their classes, parameters and enumerations."""
