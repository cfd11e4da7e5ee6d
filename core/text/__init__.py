"""Text for people: safe printing, suggestions for misspelled names, TOML values."""
