"""The SQL read model: the log folded into tables that commands, pages and people query.

Invariant 1, the log is the truth: everything here can be dropped and folded again, byte for byte. Every row of something
that changes records from which position to which it held, so any query can be answered as of any position.
"""
