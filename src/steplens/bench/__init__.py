"""Two versions of a program run in turns on this machine, until it can be told whether a step became longer."""
