"""The tables of a trace from what a reader found: steps, nesting, categories, the work of the device."""
