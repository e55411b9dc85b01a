"""The rules of the house, one module each; ``advice.table`` lists them."""
