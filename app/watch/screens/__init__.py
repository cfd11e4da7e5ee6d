"""The live view of a run in a terminal: overview, episodes, one episode, one step. Keys are those of the page."""
