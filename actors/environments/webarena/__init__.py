"""WebArena and WebArena-Lite: their task files as they were released, on sites that somebody hosts."""
