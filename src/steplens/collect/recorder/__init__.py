"""steplens' own recorder of operators and allocations: a library of C++ (``native/recorder``) that PyTorch calls."""
