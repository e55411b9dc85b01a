"""The readers: one module per on-disk format, each giving a trace."""
