"""Domain types: task, action, observation, evidence."""
