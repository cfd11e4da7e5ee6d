"""Models with torch: load, tokenize, forward and score; shared by actors, judges and learner."""
