"""The embedded store: a real multi-page shop on loopback, with its tasks, evaluators and scripted demonstrators.

The same task and the same requests give byte-identical pages on every machine: nothing reads a clock, and every choice
derives from the catalogue's or the task's seed.
"""
