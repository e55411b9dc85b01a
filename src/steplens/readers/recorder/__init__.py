"""Files of the recorder of operators, and what Kineto records of a device beside them."""
