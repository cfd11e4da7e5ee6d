"""The policy on vLLM servers: real models, sampled over HTTP, token ids in and out."""
