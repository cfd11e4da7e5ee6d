"""An S3-compatible bucket for blobs: objects are written once under their digest, read, deleted.

The address is `s3://bucket/prefix`. Server and credentials come from the environment, as for every S3 client:
AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, or the machine's role. No
setting and no event holds a key. The library (`obstore`, the extra `s3`) retries failed requests with growing pauses for
`retry_s`; then an error is raised. All calls are synchronous.
"""

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from hindcast.core.errors import BlobsUnreachable, SettingsError
from hindcast.core.text.addresses import split_address
from hindcast.events.jetstream.addresses import LOOPBACK

if TYPE_CHECKING:
    from obstore import Bytes, GetResult
    from obstore.store import S3Store

SCHEME = "s3"
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
"""Variables that may name the server, in this order."""
PART_BYTES = 64 * 1024 * 1024
"""Larger blobs are sent in parts of this size; a server accepts up to 10 000 parts."""
CHUNK_BYTES = 4 * 1024 * 1024
"""A blob that is read into a file arrives in chunks of this size."""
REQUEST_S = 60.0
SAID_CHARACTERS = 400
NO_BUCKET = "NoSuchBucket"
"""S3's error code for a missing bucket, which the library reports as an object that is not found."""
CONNECT_S = 5.0

Answer = TypeVar("Answer")


def is_bucket(address: str) -> bool:
    """Whether `storage.blobs` names a bucket instead of a folder."""
    return address.startswith(f"{SCHEME}:")


def check_address(address: str) -> tuple[str, str]:
    """Bucket and prefix of an address.

    Raises:
        SettingsError: it is no bucket address, or holds a key.
    """
    split = split_address(address)
    if split.username is not None or split.password is not None or split.query:
        raise SettingsError(
            "storage.blobs holds a key or an option. Settings are recorded, so keys must not be in them. Set keys in the "
            "environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"
        )
    if split.scheme != SCHEME or not split.netloc or ":" in split.netloc:
        raise SettingsError(
            f"storage.blobs = {address!r} is no bucket: write s3://bucket/prefix, and name its server in AWS_ENDPOINT_URL"
        )
    return split.netloc, split.path.strip("/")


class Bucket:
    """The objects under one prefix of a bucket."""

    def __init__(self, address: str, *, retry_s: float) -> None:
        """Check the address; no request is sent yet.

        Raises:
            SettingsError: the address is wrong.
        """
        self.address = address.rstrip("/")
        self._retry_s = retry_s
        self._store: S3Store | None = None
        check_address(address)

    def put(self, name: str, content: bytes) -> None:
        """Create an object; an existing one is left unchanged, since its name is its digest."""
        from obstore.exceptions import AlreadyExistsError

        try:
            if len(content) <= PART_BYTES:
                self._call(lambda store: store.put(name, content, mode="create"))
            elif self.size(name) != len(content):
                # uploads in parts cannot be conditional; an object that they replace is equal
                self._call(lambda store: store.put(name, content, chunk_size=PART_BYTES))
        except AlreadyExistsError:
            return

    def get(self, name: str) -> bytes | None:
        """The content; None: no such object."""
        try:
            return self._call(lambda store: bytes(store.get(name).bytes()))
        except FileNotFoundError:
            return None

    def read(self, name: str) -> "Iterator[Bytes] | None":
        """The content in chunks of about `CHUNK_BYTES`, for blobs that are larger than memory should hold; None: no such object.

        Raises:
            BlobsUnreachable: the server failed, perhaps after some chunks.
        """
        try:
            return self._chunks(self._call(lambda store: store.get(name)))
        except FileNotFoundError:
            return None

    def _chunks(self, answer: "GetResult") -> "Iterator[Bytes]":
        from obstore.exceptions import BaseError

        try:
            yield from answer.stream(min_chunk_size=CHUNK_BYTES)
        except (BaseError, OSError) as error:
            raise self._unreachable(error) from error

    def size(self, name: str) -> int | None:
        """Size in bytes; None: no such object."""
        try:
            return self._call(lambda store: int(store.head(name)["size"]))
        except FileNotFoundError:
            return None

    def delete(self, name: str) -> None:
        """Delete an object, if it exists."""
        try:
            self._call(lambda store: store.delete(name))
        except FileNotFoundError:
            return

    def _call(self, ask: "Callable[[S3Store], Answer]") -> Answer:
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            return ask(self._opened())
        except AlreadyExistsError:
            raise
        except FileNotFoundError as error:
            if NO_BUCKET not in str(error):
                raise
            raise self._unreachable(error) from error
        except (BaseError, OSError) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: BaseException) -> BlobsUnreachable:
        return BlobsUnreachable(
            f"the bucket {self.address} at {endpoint() or 'Amazon'} failed, after retries for "
            f"{self._retry_s:g} s (storage.full_wait_s): {_first_line(error)}. Check that the server is up, that the bucket "
            "exists, and that AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY may read, write and delete there."
        )

    def _opened(self) -> "S3Store":
        if self._store is None:
            self._store = _open(self.address, self._retry_s)
        return self._store


def endpoint() -> str:
    """The server that the environment names; empty: Amazon's."""
    return next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), "")


def _open(address: str, retry_s: float) -> "S3Store":
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise SettingsError(
            f"storage.blobs = {address} needs the library obstore. Run: pip install 'hindcast[s3]'"
        ) from error
    server = urlsplit(endpoint())
    local = server.hostname in LOOPBACK
    if server.scheme == "http" and not local:
        raise SettingsError(
            f"the environment names {endpoint()} as the S3 server: blobs would be sent unencrypted. Use https://"
        )
    bucket, prefix = check_address(address)
    return S3Store(
        bucket,
        prefix=prefix or None,
        config={"endpoint": endpoint()} if endpoint() else {},
        client_options={
            "allow_http": local,
            "timeout": timedelta(seconds=REQUEST_S),
            "connect_timeout": timedelta(seconds=CONNECT_S),
        },
        retry_config={"max_retries": 1000, "retry_timeout": timedelta(seconds=retry_s)},
    )


def _first_line(error: BaseException) -> str:
    """First line of an error, without the library's debugging details."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return first[:SAID_CHARACTERS]
