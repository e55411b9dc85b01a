"""The waist: the tables of a run, their schema, nesting, cache and health."""
