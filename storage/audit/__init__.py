"""A second opinion on a log: whether it is whole, unaltered and consistent, told by code that did not write it.

    EventLog.read ──> event ──> chains, digests, names          is it what producers appended, where they appended it?
                      (msgpack)  tasks, episodes, training, …    does every fact follow from what stands before it?
                                 blobs                           is what it names still there, byte for byte?

Independent of `events.codec`, `events.log.hash_chain` and `events.log.reader`: stored bytes are decoded with another library, and
hashed, linked and checked by rules written down here once more. Shared is only what says how a log is *meant* to look:
the catalogue's names and types. A mistake in one of the two codes shows as a defect instead of being made twice.
"""
