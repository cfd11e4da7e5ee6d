"""The archive: the log in files, without a broker. Segments of compressed, chained frames, and a manifest that names them.

    DIR/manifest.json                      run, closed segments with size, sha256, chain and rolling digest
    DIR/segments/00000000000000000001.seg  header, then frames; the name is the first position
    DIR/archive.lock                       held by the one process that writes

`writer` appends and closes segments, `reader` finds and checks events, `archive_log` is the `EventLog` on top, `check` checks
every byte.
"""
