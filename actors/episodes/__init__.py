"""Playing an episode: the actor process, one attempt at a request, the step loop, and its record in the log."""
