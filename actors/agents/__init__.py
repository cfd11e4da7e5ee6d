"""Agents of the user's own: a command per episode, which asks the policy by an OpenAI-compatible address. See docs/agents.md."""
