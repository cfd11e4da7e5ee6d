"""Live terminal view of a run: overview, episodes, one episode, one step. Keys are those of the page."""
