"""The event log: facts, their envelope and codec, the port to append and read them, and its adapters."""
