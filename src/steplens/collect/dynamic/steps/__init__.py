"""Where the steps of a script begin and end that says nothing of them."""
