"""Client of an OpenAI-compatible server: requests, prompts, batches, and checks of the answers."""
