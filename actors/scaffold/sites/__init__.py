"""State files that ship, one per environment: data, read by `actors.scaffold.files`."""
