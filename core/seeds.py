"""The one way to derive seeds and stable identifiers from a run's seed and names: no `hash()`, no global generator."""

from hashlib import blake2b

Name = str | int


def _digest(run_seed: int, names: tuple[Name, ...], size: int) -> bytes:
    state = blake2b(digest_size=size, key=run_seed.to_bytes(16, "little", signed=True))
    for name in names:
        encoded = str(name).encode()
        state.update(len(encoded).to_bytes(4, "little"))
        state.update(encoded)
    return state.digest()


def derive_seed(run_seed: int, *names: Name) -> int:
    """Derive a 63-bit seed from every name and their order: `derive_seed(7, "episode", "ep_1", "step", 3)`."""
    return int.from_bytes(_digest(run_seed, names, 8), "little") >> 1


def derive_id(prefix: str, run_seed: int, *names: Name) -> str:
    """Derive an identifier such as `ep_9f2c41d07ab3`: the same names give the same id in every process."""
    return f"{prefix}_{_digest(run_seed, names, 6).hex()}"
