"""The log on NATS JetStream: broker, connection, stream, work queue."""
