"""Libraries of C++ that steplens brings as sources: built where a compiler is, kept, and loaded with a plain C interface."""
