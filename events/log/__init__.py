"""The log's interface: port, publisher, reader, consumer, work queue, places, and the in-memory adapter."""
