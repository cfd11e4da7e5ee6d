"""Certificates for tests, made by openssl and good for two days."""

import subprocess
from pathlib import Path

from hindcast.events.jetstream.broker import HOST


def certificate(folder: Path, name: str, *, signer: str = "") -> None:
    """`name.pem` and `name.key`, signed by `signer` or by itself."""
    named = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:{HOST}"]
    signed = ["-CA", folder / f"{signer}.pem", "-CAkey", folder / f"{signer}.key"] if signer else []
    kind = "CA:FALSE" if signer else "CA:TRUE"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-days", "2", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"),
            *(*named, "-addext", f"basicConstraints=critical,{kind}", *signed),
        ],
        check=True,
        capture_output=True,
    )
    (folder / f"{name}.key").chmod(0o600)
