"""The documentation site: docs/ and the README, references of commands, settings and events, and pictures of a real run."""
