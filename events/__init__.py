"""The log: facts, their envelope, the port to append and read them, and everything that folds them."""
