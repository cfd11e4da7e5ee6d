"""Domain types and pure rules of Hindcast, without event loop, broker, browser or database."""
