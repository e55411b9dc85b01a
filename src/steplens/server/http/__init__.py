"""How the server is reached: address, connections, who may ask, errors."""
