"""The action grammar: answers of a policy parsed into actions, in every dialect, and constraints on answers."""
