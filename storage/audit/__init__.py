"""Audit of a log by independent code: whether it is complete, unaltered and consistent.

    EventLog.read ──> event ──> chains, digests, names          is it what producers appended, where they appended it?
                      (msgpack)  tasks, episodes, training, …    does every fact follow from the events before it?
                                 blobs                           does every blob that it names exist, byte for byte?

Independent of `events.codec`, `events.log.hash_chain` and `events.log.reader`: stored bytes are decoded with another library,
and hashed, linked and checked by a second implementation of the rules. Shared is only the catalogue, which says how a log is
*meant* to look. So a mistake in one of the two implementations shows as a defect.
"""
