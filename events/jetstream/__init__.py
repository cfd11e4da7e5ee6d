"""The adapter of the log to NATS JetStream: broker, connection, stream, work queue."""
