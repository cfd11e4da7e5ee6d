"""The action grammar: parsing answers into actions, in every dialect, and constraints on answers."""
