"""Models trained next to the policy: critic, reward model, relabeler, and their training sets."""
