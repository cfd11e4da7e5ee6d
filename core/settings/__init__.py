"""The settings schema, with a module for each larger section."""
