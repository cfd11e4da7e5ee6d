"""The role `policy_server`: starts a vLLM server, or is told of some, and gives them the weights that the learner
publishes."""
