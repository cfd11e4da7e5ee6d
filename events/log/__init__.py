"""The log as everything else sees it: port, publisher, reader, consumer, work queue, places, and the adapter in memory."""
