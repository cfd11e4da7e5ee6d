"""Loading and saving of policies: folders of Hugging Face models, safetensors only, float32, evaluation mode.

A weights file, which the learner publishes and engines adopt, holds only tensors, without a head that is tied to the
embedding.
"""

import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.utils import logging as transformers_logging

from hindcast.core.errors import ModelFileError
from hindcast.core.models.adapter import adapter_of, base_name, encode_adapter, is_adapter_name, load_adapter
from hindcast.core.models.adapter_file import adapter_config
from hindcast.core.models.model_files import WEIGHTS as WEIGHTS
from hindcast.core.models.model_files import misfits, require_files, stop_tokens, weight_files
from hindcast.core.models.sharded_tensors import fill, whole
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.models.vision import KINDS, name_in_model

transformers_logging.set_verbosity_error()  # its warnings (GPU kernels) are of no use here


class LoadedPolicy(NamedTuple):
    """A policy ready to act or to train."""

    model: Any
    """A causal language model of transformers: float32, evaluation mode."""
    tokenizer: Any
    """Its fast tokenizer, with a chat template and an end token."""
    folder: Path
    stops: tuple[int, ...]
    """Tokens that end an answer."""


CPU = torch.device("cpu")
HASHERS = min(8, os.cpu_count() or 1)
"""Threads that compute digests of tensors."""


def load_policy(folder: Path, *, device: torch.device = CPU) -> LoadedPolicy:
    """Load model and tokenizer. Raises ModelFileError, which names the missing, damaged or unsupported file."""
    require_files(folder)
    make_deterministic()
    tokenizer = load_tokenizer(folder)
    model = model_without_weights(folder)
    allocate_weights(model, device)
    _fill(model, _StoredTensors(weight_files(folder), model.config.model_type), path=folder)
    return LoadedPolicy(model, tokenizer, folder, stop_tokens(folder, model.config, tokenizer))


def model_without_weights(folder: Path) -> Any:
    """Make the model of a folder in float32 and evaluation mode, with its weights on torch's meta device: they take no memory.

    It can be given an adapter, another precision and shards before `allocate_weights`. Raises ModelFileError.
    """
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        config.use_cache = True
        with _parameters_on_meta():
            model = model_class(config).from_config(config, dtype=torch.float32, attn_implementation="sdpa")
    except (ValueError, KeyError, OSError, TypeError, AttributeError) as error:
        raise ModelFileError(
            f"{folder / 'config.json'} describes no causal model known here: {error}"
        ) from error
    return model.float().eval()


_making = threading.local()
"""`on_meta`: whether this thread's new parameters are meta tensors."""


def _on_meta(_module: Any, _name: str, value: torch.nn.Parameter | None) -> torch.nn.Parameter | None:
    if value is None or value.is_meta or not getattr(_making, "on_meta", False):
        return None
    return torch.nn.Parameter(value.to("meta"), requires_grad=value.requires_grad)


# once and for all: torch goes through its hooks without a lock, also for models that other threads make meanwhile
register_module_parameter_registration_hook(_on_meta)  # type: ignore[arg-type]


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Make every parameter that this thread creates within the block a meta tensor. Buffers, such as frequencies, are computed."""
    _making.on_meta = True
    try:
        yield
    finally:
        _making.on_meta = False


def allocate_weights(model: Any, device: torch.device) -> None:
    """Give the weights of `model_without_weights` memory on a device, uninitialized; of a sharded model only this rank's part."""
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    model.to_empty(device=device)
    for name, value in model.named_buffers():
        value.copy_(buffers[name])
    model.tie_weights(recompute_mapping=False)


def model_class(config: Any) -> Any:
    """Choose transformers' class for a policy with this configuration."""
    return AutoModelForImageTextToText if config.model_type in KINDS else AutoModelForCausalLM


def load_weights(model: Any, path: Path) -> None:
    """Load a file of weights, or of an adapter (`core.models.adapter.load_adapter`), into the model.

    Raises ModelFileError if they do not fit; then no weight has changed.
    """
    tensors = _StoredTensors([path])
    config = adapter_config(path)
    if config is not None:
        load_adapter(model, {name: tensors.read(name) for name in tensors.shapes}, config, path)
        return
    _fill(model, tensors, path=path)
    model.unmerged = {}


def weights_of(model: Any) -> dict[str, torch.Tensor]:
    """Return every tensor that defines the model, by name, sorted, without a tied head.

    For a model with an adapter, only the adapter: the rest is frozen.
    """
    return adapter_of(model) or _whole_weights_of(model)


def _whole_weights_of(model: Any) -> dict[str, torch.Tensor]:
    """Return every tensor of the model without its adapter, by its name in files, sorted, without a tied head."""
    tied = (
        set(getattr(model, "all_tied_weights_keys", None) or {})
        if model.config.tie_word_embeddings
        else set()
    )
    state = {name: value.detach() for name, value in model.state_dict().items()}
    if adapter_of(model):
        state = {base_name(name): value for name, value in state.items() if not is_adapter_name(name)}
    return {name: value for name, value in sorted(state.items()) if name not in tied}


def encode_weights(model: Any) -> bytes:
    """Encode the weights, or the adapter, as the bytes of a safetensors file; the same weights give the same bytes."""
    if adapter_of(model):
        return encode_adapter(model)
    content: bytes = save(
        {name: whole(value).contiguous() for name, value in weights_of(model).items()}, {"format": "pt"}
    )
    return content


def save_weights(model: Any, path: Path) -> None:
    """Write the weights to a file; a reader sees the whole file or none."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(encode_weights(model))
    partial.replace(path)


def make_deterministic() -> None:
    """Make torch use deterministic algorithms: the same bits each time with the same number of threads.

    On a GPU torch then refuses cuBLAS without a workspace of its own for each stream. Uninitialized memory is not filled:
    nothing reads it, and filling took a quarter of each decoding step.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when a GPU is first computed on
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


class _StoredTensors:
    """Tensors of safetensors files, read one at a time: a file is mapped only while one of its tensors is copied."""

    def __init__(self, paths: Sequence[Path], kind: str = "") -> None:
        """`kind`: `model_type` of the model whose folder they are in. Raises ModelFileError."""
        self.shapes: dict[str, list[int]] = {}
        """Shape by name in the model."""
        self._places: dict[str, tuple[Path, str]] = {}
        for path in paths:
            with _opened(path) as file:
                for stored_name in file.keys():  # noqa: SIM118 - not a mapping
                    name = name_in_model(stored_name, kind)
                    self._places[name] = path, stored_name
                    self.shapes[name] = list(file.get_slice(stored_name).get_shape())

    def read(self, name: str) -> torch.Tensor:
        """Read a tensor. Raises ModelFileError."""
        path, stored_name = self._places[name]
        with _opened(path) as file:
            tensor: torch.Tensor = file.get_tensor(stored_name)
        return tensor


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a safetensors file. Raises ModelFileError."""
    try:
        with safe_open(path, "pt") as file:
            yield file
    except FileNotFoundError:
        raise ModelFileError(f"there are no weights at {path}; only safetensors files are read") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(
            f"{path} is damaged or no safetensors file: {error}. Fetch or write it again."
        ) from error


def _fill(model: Any, tensors: _StoredTensors, *, path: Path) -> None:
    """Copy weights in place, so that optimizers and caches keep their tensors."""
    weights = _whole_weights_of(model)
    problems = misfits({name: list(value.shape) for name, value in weights.items()}, tensors.shapes)
    if problems:
        raise ModelFileError(f"the weights in {path} do not fit the model: {'; '.join(problems[:3])}")
    for name, value in weights.items():
        fill(value, tensors.read(name))


def state_digest(model: Any, optimizer: torch.optim.Optimizer | None = None, *, arithmetic: int = 1) -> str:
    """Compute the sha256 over names and bytes of all weights and optimizer tensors, sorted; 64 hexadecimal characters.

    Optimizer state is named by parameter, so that the order of parameter groups does not matter. `arithmetic`: as
    `learner.arithmetic`; from 2 on it is the sha256 over the digests of the tensors, which are computed in threads.
    """
    tensors = {f"weights/{name}": value for name, value in weights_of(model).items()}
    if optimizer is not None:
        optimizer_state = optimizer_tensors(model, optimizer)
        tensors |= {f"optimizer/{name}": value for name, value in optimizer_state.items()}
    state = sha256()
    if arithmetic == 1:
        for name, value in tensors.items():
            _add_tensor(state, name, whole(value))
    else:
        for digest in _tensor_digests(tensors):
            state.update(digest)
    return state.hexdigest()


def _tensor_digests(tensors: Mapping[str, torch.Tensor]) -> Iterator[bytes]:
    """Compute the sha256 of each tensor with its name, in their order. Gathers one while others are hashed.

    At most `HASHERS` gathered tensors are in memory, and one more.
    """

    def digest(name: str, value: torch.Tensor) -> bytes:
        state = sha256()
        _add_tensor(state, name, value)
        return state.digest()

    with ThreadPoolExecutor(HASHERS) as pool:
        pending: deque[Future[bytes]] = deque()
        for name, value in tensors.items():
            if len(pending) == HASHERS:
                yield pending.popleft().result()
            pending.append(pool.submit(digest, name, whole(value)))
        while pending:
            yield pending.popleft().result()


def optimizer_tensors(model: Any, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return the optimizer's tensors by `<parameter>/<key>`, sorted, as a checkpoint stores them."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    tensors = {
        f"{names[id(parameter)]}/{key}": value.detach()
        for parameter, entries in optimizer.state.items()
        for key, value in entries.items()
        if isinstance(value, torch.Tensor)
    }
    return dict(sorted(tensors.items()))


def _add_tensor(state: Any, name: str, value: torch.Tensor) -> None:
    """Add a tensor on the CPU to a sha256."""
    header = f"{name} {value.dtype} {list(value.shape)}\n".encode()
    state.update(len(header).to_bytes(4, "little"))
    state.update(header)
    state.update(value.contiguous().view(-1).view(torch.uint8).numpy())
