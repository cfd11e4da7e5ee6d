"""Python, command line and environment of the vLLM servers that are started here."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hindcast.core.errors import ModelFileError, SettingsError
from hindcast.core.models.folders import policy_folder, require_folder
from hindcast.core.settings.schema import Settings, VllmSettings
from hindcast.core.text.plain_values import parse_json

OWN_PYTHON = Path(__file__).resolve().parents[2] / ".venv-vllm" / "bin" / "python"
"""The Python that `make vllm` installs."""
WORKER = ("--worker-extension-cls", "hindcast_worker.PolicyWorker")
"""Arguments that add our methods to a server's workers."""
WORKER_FOLDER = Path(__file__).resolve().parents[1] / "engines" / "vllm" / "worker"
"""Folder of their module, which is importable in the server's processes."""
HOST = "127.0.0.1"
OURS = (
    "--model",
    "--host",
    "--port",
    "--logprobs-mode",
    "--generation-config",
    "--dtype",
    "--enable-scale-out",
    "--max-num-seqs",
    "--disable-uvicorn-access-log",
    "--served-model-name",
    "--enable-lora",
    "--no-enable-lora",
    "--max-lora-rank",
    "--worker-extension-cls",
)
"""Arguments that `vllm.arguments` may not contain: other settings determine them, or recorded data depend on them."""
OVERRIDES = "--hf-overrides"
FLOAT32_HEAD = '{"head_dtype": "float32"}'
"""Value of `--hf-overrides` with which a server computes logits in float32 (`learner.float32_head`)."""
GPU_ARGUMENTS = ("--gpu-memory-utilization", "--tensor-parallel-size", "-tp")
"""Arguments that contradict `vllm.memory_share` and `vllm.gpus` where these are set."""
SEQUENCES_ON_GPUS = 256
"""Answers that a server on GPUs computes at once, if the settings name no number."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
SERVED = "policy"
WRONG_ON_CPUS = frozenset({"lfm2"})
"""Values of `model_type` that vLLM 0.32's build for CPUs was seen to compute otherwise than transformers."""
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that vLLM 0.32 can be started for; a server accepts adapters of this rank or less."""
LORAS_AT_ONCE = 2
"""Adapters in one batch: when a new one is loaded, running answers have the previous one. Answers with a third adapter wait
until one of the two has none.
"""
LORAS_IN_MEMORY = 4
"""Adapters that a server keeps in memory."""
FOR_CPUS = ("--no-enable-chunked-prefill", "--no-enable-prefix-caching", "--enforce-eager")
"""Arguments of the build for CPUs (`make vllm`). There, a seeded prompt that is read in parts ends vLLM 0.32 ("CPU
Generator does not use offset"), a prompt cache makes it read some models' prompts in parts, and compiling a model takes
longer than a small one gains by it.
"""


def server_python(settings: Settings) -> Path:
    """The Python that starts the server.

    Raises:
        SettingsError: it does not exist.

    """
    configured = settings.vllm.python
    python = Path(configured).expanduser() if configured else OWN_PYTHON
    if not python.is_file():
        subject = f"vllm.python = {configured!r} is" if configured else f"{OWN_PYTHON} is"
        raise SettingsError(
            f"policy.engine = 'vllm' starts a vLLM server, and {subject} not there. Run: make vllm    On a machine with a GPU, "
            "install vllm into an environment of its own and name it: vllm.python=DIR/bin/python"
        )
    return python


def require_policy_servers(settings: Settings) -> None:
    """Assert that a run's policy servers can be started here. Raises SettingsError."""
    if settings.vllm.servers:
        return
    server_python(settings)
    if settings.vllm.python:
        return
    folder = policy_folder(settings.policy.base)
    require_folder(folder)
    kind = config_of(folder).get("model_type")
    if kind in WRONG_ON_CPUS:
        raise SettingsError(
            f"policy.base = {settings.policy.base!r} is of the kind {kind!r} (model_type in {folder / 'config.json'}), which vLLM's "
            "build for CPUs computes otherwise than transformers: log-probabilities were up to 23 nats apart. Set policy.engine to "
            "in_process, or policy.base to a model of another kind, as Llama or Qwen2"
        )


def config_of(folder: Path) -> dict[str, Any]:
    """The config.json of a model's folder. Raises ModelFileError if it cannot be read."""
    path = folder / "config.json"
    try:
        config = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise ModelFileError(f"{path} is not a model's configuration: it holds no object")
    return config


def has_tied_head(folder: Path) -> bool:
    """Whether a model multiplies by its embedding to compute logits. Raises ModelFileError if its config.json cannot be read."""
    return bool(config_of(folder).get("tie_word_embeddings", False))


def server_command(
    python: Path, folder: Path, *, port: int, settings: Settings, host: str = HOST
) -> list[str]:
    """The command line. `folder`: of the policy. The program `vllm` is not used: builds for CPUs lack its entry point."""
    vllm = settings.vllm
    return [
        str(python),
        "-m",
        "vllm.entrypoints.openai.api_server",
        *("--model", str(folder)),
        *("--served-model-name", SERVED),
        *("--host", host),
        *("--port", str(port)),
        # log-probabilities of the sampling distribution: temperature and allowed tokens applied
        *("--logprobs-mode", "processed_logprobs"),
        # else a model's own generation settings change the sampling distribution
        *("--generation-config", "vllm"),
        # vLLM's own choice for a model in float32 is a shorter format
        *("--dtype", vllm.dtype or dtype_of(folder)),
        *("--max-num-seqs", str(max_num_seqs(settings))),
        "--enable-scale-out",  # the interface with token ids, log-probabilities and a version per token
        "--disable-uvicorn-access-log",
        *(() if vllm.python else FOR_CPUS),
        *for_adapters(settings.learner.lora_rank),
        *(("--gpu-memory-utilization", f"{vllm.memory_share:g}") if vllm.memory_share else ()),
        *((OVERRIDES, FLOAT32_HEAD) if settings.learner.float32_head else ()),
        *(("--tensor-parallel-size", str(vllm.gpus_per_server)) if vllm.gpus_per_server > 1 else ()),
        *vllm.arguments,
    ]


def max_num_seqs(settings: Settings) -> int:
    """Answers that one server computes at once. `vllm.python` empty: the build for CPUs."""
    vllm = settings.vllm
    return vllm.max_num_seqs or (SEQUENCES_ON_GPUS if vllm.python else settings.policy.max_batch)


def server_gpus(vllm: VllmSettings) -> list[tuple[int, ...]]:
    """GPUs of each server that is started here; empty: those that vLLM chooses."""
    if not vllm.gpus:
        return [()]
    per_server = vllm.gpus_per_server
    return [vllm.gpus[first : first + per_server] for first in range(0, len(vllm.gpus), per_server)]


def for_adapters(rank: int) -> list[str]:
    """Arguments of a server that accepts adapters of a rank; 0: it accepts none."""
    if not rank:
        return []
    served = next(supported for supported in LORA_RANKS if supported >= rank)
    return [
        "--enable-lora",
        *("--max-lora-rank", str(served)),
        *("--max-loras", str(LORAS_AT_ONCE)),
        *("--max-cpu-loras", str(LORAS_IN_MEMORY)),
    ]


def dtype_of(folder: Path) -> str:
    """The number format in a model's config.json; `auto`: it names none. Raises ModelFileError if it cannot be read."""
    config = config_of(folder)
    return str(config.get("dtype") or config.get("torch_dtype") or "auto")


def own_server(
    settings: Settings, folder: Path, *, port: int, gpus: Sequence[int] = ()
) -> tuple[list[str], dict[str, str]]:
    """Command line and environment of a server that is started here, on loopback, with our methods in its workers.

    `folder`: of the policy. `gpus`: of `server_gpus`. Raises SettingsError, ModelFileError.
    """
    command = server_command(server_python(settings), folder, port=port, settings=settings)
    environment = server_environment(settings, gpus=gpus)
    return [*command, *WORKER], environment | {"PYTHONPATH": str(WORKER_FOLDER)}


def server_environment(
    settings: Settings, inherited: Mapping[str, str] = os.environ, *, gpus: Sequence[int] = ()
) -> dict[str, str]:
    """Environment variables of the server's process. `gpus`: of `server_gpus`."""
    keep = {name: value for name, value in inherited.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return keep | {
        "VLLM_SERVER_DEV_MODE": "1",  # pausing, new weights: on loopback alone
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(settings.vllm.cpu_cache_gib),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(settings.policy.threads),
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": str(bool(settings.learner.lora_rank)),
        **({"VLLM_BATCH_INVARIANT": "1"} if settings.vllm.batch_invariant else {}),
        **({VISIBLE: visible_gpus(gpus, inherited)} if gpus else {}),
    }


def visible_gpus(gpus: Sequence[int], inherited: Mapping[str, str]) -> str:
    """Value of `CUDA_VISIBLE_DEVICES` for these GPUs; a scheduler such as SLURM may have set it for this process.

    Raises:
        SettingsError: the scheduler's list is shorter.

    """
    visible = [name for name in inherited.get(VISIBLE, "").split(",") if name]
    if not visible:
        return ",".join(map(str, gpus))
    if missing := [gpu for gpu in gpus if gpu >= len(visible)]:
        raise SettingsError(
            f"vllm.gpus names GPU {missing[0]}, and {VISIBLE}={inherited[VISIBLE]} gives this process {len(visible)}, numbered from 0: "
            "ask the scheduler for more, or change vllm.gpus. hindcast size --gpus N --emit settings.toml writes a placement"
        )
    return ",".join(visible[gpu] for gpu in gpus)
