"""Policy engines: token ids in, token ids with log-probabilities and versions out."""
