"""MiniWoB++: small tasks on pages of their own, from the `miniwob` package."""
