"""The words and pure rules of Hindcast: no event loop, no broker, no browser, no database."""
