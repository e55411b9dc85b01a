"""The timeline of a trace as data: lanes and rows of events, coarser resolutions of them, and the file they are kept in."""
