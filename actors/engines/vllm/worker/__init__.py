"""What runs inside the workers of a vLLM server, in vLLM's own environment: one file that imports nothing of Hindcast's."""
