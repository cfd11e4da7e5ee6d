"""Policy engines: map prompt token ids to answer token ids with log-probabilities and policy versions."""
