"""Tasks that an agent of the user's own brings along."""
