"""Playing an episode: the actor process, one attempt at a request, the step loop, and what is recorded of it."""
