"""What speaks to an OpenAI-compatible server: the client, its prompts, and the checks of what comes back."""
