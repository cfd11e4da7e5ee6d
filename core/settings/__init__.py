"""The settings schema, a file for each larger section."""
