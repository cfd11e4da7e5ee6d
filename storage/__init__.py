"""What is kept beside the log: blobs, checkpoints, the SQL read model."""
