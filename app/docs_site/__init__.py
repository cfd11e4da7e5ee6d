"""The documentation site: docs/ and the README, the reference of commands, settings and events, pictures of a real run."""
