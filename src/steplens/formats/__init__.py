"""The file formats of profilers: names of files, tables, columns, events and enumerations, each in one place."""
