"""The SQL read model: the log folded into tables that people, pages and commands ask.

Invariant 1, the log is the truth: everything here can be dropped and folded again, byte for byte. Every row of
something that changes says from which position to which it held, so any question can be asked as of any position.
"""
