"""Methods that Hindcast adds to each worker of a vLLM server, for calls by `/collective_rpc`.

    PYTHONPATH=FOLDER_OF_THIS_FILE vllm serve … --worker-extension-cls hindcast_worker.PolicyWorker

vLLM 0.32 or newer makes this class a base of its worker's class. All arguments are strings, as `/collective_rpc` passes them.
"""

import hashlib
import mmap
import os
import socket
from typing import Any

from safetensors import safe_open
from vllm.config import set_current_vllm_config
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.platforms import current_platform

CHUNK_BYTES = 1 << 22
"""Most bytes that are received and hashed at once."""


class PolicyWorker:
    """Takes new weights from a connection, and keeps a head that is tied to the embedding equal to it."""

    vllm_config: Any
    model_runner: Any
    reload_weights: Any

    def receive_weights(
        self, host: str, port: str, token: str, size: str, sha256: str, timeout_s: str
    ) -> None:
        """Load the safetensors file that the listener at `host` and `port` sends to those who know `token`.

        `size`: of the file, in bytes. `timeout_s`: longest wait for a part of it. The file is held in memory (Linux's memfd).

        Raises:
            OSError: the connection failed or ended early; the weights are the previous ones.
            ValueError: the file has another digest than `sha256`; the weights are the previous ones.

        """
        memory_file = os.memfd_create("weights")
        try:
            os.ftruncate(memory_file, int(size))
            with (
                mmap.mmap(memory_file, int(size)) as content,
                memoryview(content) as view,
                socket.create_connection((host, int(port)), timeout=float(timeout_s)) as connection,
            ):
                connection.sendall(token.encode())
                digest = _receive(connection, view)
            if digest != sha256:
                raise ValueError(f"weights arrived with SHA-256 {digest}, and {sha256} was announced")
            with safe_open(f"/proc/self/fd/{memory_file}", framework="pt") as file:
                self.reload_weights(weights_iterator=((name, file.get_tensor(name)) for name in file.keys()))  # noqa: SIM118 - no mapping
        finally:
            os.close(memory_file)

    def repack_head(self) -> None:
        """Make a head that is tied to the embedding compute with the embedding's present weights.

        vLLM's build for CPUs multiplies by a packed copy of the head. It packs a layer again when a file has weights for it, which
        is never true of a tied head.
        """
        if not current_platform.is_cpu():
            return
        with set_current_vllm_config(self.vllm_config):
            for layer in self.model_runner.get_model().modules():
                if isinstance(layer, ParallelLMHead):
                    layer.quant_method.process_weights_after_loading(layer)


def _receive(connection: socket.socket, view: memoryview) -> str:
    """Fill `view` from a connection; returns the SHA-256 of the content. Raises OSError where it ends early."""
    digest, at = hashlib.sha256(), 0
    while at < len(view):
        count = connection.recv_into(view[at : at + CHUNK_BYTES])
        if not count:
            raise ConnectionError(f"the weights ended after {at} of {len(view)} bytes")
        digest.update(view[at : at + count])
        at += count
    return digest.hexdigest()
