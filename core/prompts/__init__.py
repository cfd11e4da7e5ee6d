"""Prompts: that of the policy, chat frames, page renderers, and prompts of judges and relabelers."""
