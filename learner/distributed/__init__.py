"""Several learner processes that compute each update together."""
