"""How things that ship with Hindcast were made; run from a checkout of the repository."""
