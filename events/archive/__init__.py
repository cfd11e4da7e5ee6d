"""The log in files, without a broker: segments of checked, compressed, chained frames, and a manifest that names them.

    DIR/manifest.json                      run, closed segments with size, sha256, chain and rolling digest
    DIR/segments/00000000000000000001.seg  header, then frames; the name is the first position
    DIR/archive.lock                       held by the one process that writes

`writer` appends and closes, `reading` finds and checks, `log` is the `EventLog` on top, `checking` looks at everything.
"""
