"""The page: a run that people can see into, served from its read model, its log and its blobs."""
