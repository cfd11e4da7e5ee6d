"""Settings of the vLLM servers that sample from the policy (`policy.engine = "vllm"`)."""

from typing import Annotated, Literal

from pydantic import Field

from hindcast.core.settings.section import Count, Seconds, Section

LOWEST_TEMPERATURE = 0.01
"""Lowest temperature above 0 that vLLM samples with; it raises lower ones to this."""


class VllmSettings(Section):
    """vLLM servers that sample from the policy if `policy.engine = "vllm"` (docs/vllm.md)."""

    servers: tuple[str, ...] = ()
    """Addresses of external servers, as `http://10.0.0.5:8000`; empty: Hindcast starts its own."""
    python: str = ""
    """Python of the environment with vLLM, for the server that Hindcast starts; empty: that of `make vllm`, `.venv-vllm`."""
    gpus: tuple[Annotated[int, Field(ge=0, le=1023)], ...] = ()
    """GPUs for the servers that Hindcast starts, by number among those that it sees, as `[2, 3]`; empty: one server, on the first
    GPU. The learner's processes use the first `learner.processes` GPUs."""
    gpus_per_server: Count = 1
    """Number of `gpus` that share one server's weights (tensor parallelism). Each further group of `gpus` has a server of its
    own."""
    memory_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of each GPU's memory that a server takes (`--gpu-memory-utilization`); 0: vLLM's own default, about 0.9."""
    max_num_seqs: Annotated[int, Field(ge=0, le=65_536)] = 0
    """Maximum answers that a server computes at once (`--max-num-seqs`); 0: 256 on GPUs, `policy.max_batch` without."""
    request_seeds: bool = True
    """Whether each request names a seed, so that a server that is asked the same again draws the same. On GPUs vLLM samples
    requests with a seed one by one, which is slower for many at once."""
    batch_invariant: bool = False
    """Whether an answer is computed alike whatever else a server computes at the time (`VLLM_BATCH_INVARIANT`); slower, and needs
    GPUs of compute capability 9.0 or newer."""
    arguments: tuple[str, ...] = ()
    """Further arguments of the servers that Hindcast starts, as `--max-model-len=8192`."""
    dtype: Literal["", "float32", "bfloat16", "float16"] = ""
    """Number format of the server that Hindcast starts; empty: that of the model's config.json."""
    cpu_cache_gib: Annotated[int, Field(ge=1)] = 1
    """KV cache in GiB of a server that Hindcast starts without a GPU."""
    transfer: Literal["files", "stream"] = "files"
    """How servers get whole weights: `files`: from a folder that they read; `stream`: over a connection from the role
    `policy_server`, with their digest checked, into servers with our methods in their workers (docs/vllm.md). Where that fails,
    from the folder."""
    weights_folder: str = ""
    """Folder for the servers' weights, which they read under the same path; empty: one in the home. Servers on other machines
    need a shared one."""
    pause: Literal["keep", "wait"] = "keep"
    """Unfinished answers when whole weights change: `keep`: they continue with the new weights, and each token records the
    version that sampled it; `wait`: they finish first. With adapters (`learner.lora_rank`) they finish with the old ones."""
    start_timeout_s: Seconds = 900.0
    """Time limit from a server's start to its first answer; a large model takes minutes."""
    sync_timeout_s: Seconds = 300.0
    """Time limit of one step of a weight update on a server."""
    straggler_timeout_s: Seconds = 60.0
    """With several servers: how long new weights wait for a server that lacks them once another has them. Then its requests
    go to the others until it has caught up, and an event records it."""
    backoff_s: Annotated[float, Field(gt=0, le=30)] = 0.2
    """Pause after a server's failure; it doubles with each consecutive one, up to 10 s."""
