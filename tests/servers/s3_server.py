"""A server that speaks S3, as a process of its own on a port that it chooses; keeps everything in its memory."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

STOP_S = 20.0
BUCKET = "hindcast"
KEYS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "a-secret", "AWS_REGION": "us-east-1"}


class S3Server:
    """The server, and what the environment of its clients says."""

    def __init__(self, process: "subprocess.Popen[bytes]", url: str) -> None:
        self.process = process
        self.environment = {**KEYS, "AWS_ENDPOINT_URL": url}

    def make_bucket(self) -> None:
        """Ours; nothing happens where it is there."""
        import boto3

        client = boto3.client(
            "s3",
            endpoint_url=self.environment["AWS_ENDPOINT_URL"],
            region_name=KEYS["AWS_REGION"],
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        )
        client.create_bucket(Bucket=BUCKET)
        client.close()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One server for all tests; every test takes a prefix of its own."""
    words = tmp_path_factory.mktemp("s3") / "output.txt"
    with words.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        server = S3Server(process, _address(process, words))
        server.make_bucket()
        yield server
    finally:
        process.terminate()
        process.wait(STOP_S)


def _address(process: "subprocess.Popen[bytes]", words: Path) -> str:
    """Where it says that it listens."""
    while True:
        said = re.search(r"Running on (http://127\.0\.0\.1:\d+)", words.read_text())
        if said:
            return said[1]
        assert process.poll() is None, words.read_text()
        time.sleep(0.1)
