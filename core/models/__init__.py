"""Models: load, tokenise, forward and score; shared by actors, judge and learner."""
