"""Training of the small policy that ships with Hindcast: generated look-up pages, then demonstrations."""
