"""Scripted solutions of MiniWoB++ families, by kind: pure functions of what a person sees and did so far."""
