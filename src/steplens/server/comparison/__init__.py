"""Two sides compared: what ``steplens.comparison`` finds, with what pictures of it need."""
