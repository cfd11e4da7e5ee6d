"""Whatever acts in the world and records it."""
