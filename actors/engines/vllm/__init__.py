"""The policy on vLLM servers: models sampled over HTTP, token ids in and out."""
