"""The learner: replay buffer, planning, updates, verification."""
