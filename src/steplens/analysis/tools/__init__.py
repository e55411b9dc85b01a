"""What analyses share: intervals, groups, names, order, source lines, the columns of tables, what is worked out once."""
