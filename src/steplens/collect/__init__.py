"""Records a run inside the training process into a run directory; parses nothing and never raises into training."""
