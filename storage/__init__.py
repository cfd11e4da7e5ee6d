"""Storage next to the log: blobs, checkpoints, snapshots, archives, the SQL read model, and the audit of all of them."""
