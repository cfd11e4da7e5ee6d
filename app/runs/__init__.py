"""What can be done with a run as a whole: create, open, fork, change, archive, import, repair."""
