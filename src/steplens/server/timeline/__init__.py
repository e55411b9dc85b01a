"""The timeline: lanes of events, level-of-detail tiles, search and selection."""
