"""What a model reads: prompt of the policy, chat frames, page renderers, prompts of judges and relabelers."""
