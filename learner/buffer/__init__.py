"""The replay buffer: what the learner knows about episodes, folded from the log."""
