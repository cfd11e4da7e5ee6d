"""The role `policy_server`: starts a vLLM server, or uses running ones, and gives them the published weights."""
