"""What MindSpore's profilers leave, and which of it a folder holds."""
