"""WebArena and WebArena-Lite: their released task files, on sites that the user hosts."""
