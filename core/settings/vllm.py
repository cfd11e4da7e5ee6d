"""Settings of vLLM servers that the policy is sampled on (`policy.engine = "vllm"`)."""

from typing import Annotated, Literal

from pydantic import Field

from hindcast.core.settings.section import Seconds, Section

VLLM = "vllm"
"""What the engine is called in settings."""
COLDEST = 0.01
"""vLLM samples at no temperature between 0 and this one, but at this one instead."""


class VllmSettings(Section):
    """vLLM servers that the policy is sampled on, where `policy.engine` says so (docs/vllm.md)."""

    servers: tuple[str, ...] = ()
    """Addresses of servers that somebody else starts, as `http://10.0.0.5:8000`; empty: one is started here."""
    python: str = ""
    """Python of the environment that has vLLM, for the server started here; empty: that of `make vllm`, `.venv-vllm`."""
    arguments: tuple[str, ...] = ()
    """Further arguments of the server started here, as `--tensor-parallel-size=2`."""
    dtype: Literal["", "float32", "bfloat16", "float16"] = ""
    """Number format that the server started here computes in; empty: the one that the model's config.json names."""
    cpu_cache_gib: Annotated[int, Field(ge=1)] = 1
    """Room for prompts and answers under way, of a server started here without a GPU."""
    weights_folder: str = ""
    """Folder that weights are written to for the servers, which read them under the same path; empty: one in the home. Servers
    on other machines need one that all share."""
    pause: Literal["keep", "wait"] = "keep"
    """What becomes of answers under way when whole weights change: `keep`: they go on with the new ones, each token bearing
    the version that it was sampled from; `wait`: they end first. With adapters (`learner.lora_rank`) they go on with theirs."""
    start_timeout_s: Seconds = 900.0
    """From the start of a server to its first answer; a large model takes minutes."""
    sync_timeout_s: Seconds = 300.0
    """One step of giving a server new weights."""
    straggler_timeout_s: Seconds = 60.0
    """Of several servers: how long new weights wait for one that has not got them once another has. Then it is asked nothing
    until it has them, what it was asked goes to the others, and that is recorded."""
    backoff_s: Annotated[float, Field(gt=0, le=30)] = 0.2
    """How long a server that failed is left alone, doubled with each time in a row, 10 s at most."""
