"""Loading and saving of policies: folders of Hugging Face models, safetensors only, float32, evaluation mode.

A weights file, which the learner publishes and engines adopt, holds only tensors, without a head that is tied to the
embedding.
"""

from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch.overrides import TorchFunctionMode
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.utils import logging as transformers_logging

from hindcast.core.errors import ModelFileError
from hindcast.core.models.adapter import adapter_of, encode_adapter, load_adapter
from hindcast.core.models.adapter_file import adapter_config
from hindcast.core.models.model_files import WEIGHTS as WEIGHTS
from hindcast.core.models.model_files import misfits, require_files, stop_tokens, weight_files
from hindcast.core.models.sharded_tensors import whole
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.models.vision import KINDS, name_in_model

transformers_logging.set_verbosity_error()  # its warnings (GPU kernels) are of no use here


class LoadedPolicy(NamedTuple):
    """A policy ready to act or to train."""

    model: Any
    """A causal language model of transformers: float32, evaluation mode, on the CPU."""
    tokenizer: Any
    """Its fast tokenizer, with a chat template and an end token."""
    folder: Path
    stops: tuple[int, ...]
    """Tokens that end an answer."""


class _NothingDrawn(TorchFunctionMode):
    """Skips random initialization of tensors within the block, in this thread only.

    A model made from its configuration gets random weights that the stored ones replace at once; drawing them took longer
    than reading. Computed buffers, such as position frequencies, are still computed.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if getattr(func, "__name__", "") in _DRAWING:
            return args[0] if args else given["tensor"]
        return func(*args, **given)


_DRAWING = {"normal_", "uniform_", "kaiming_uniform_"}
"""Names of functions that fill at random: methods of tensors, and those of `torch.nn.init` that a function mode can override;
its other functions call them."""


def load_policy(folder: Path) -> LoadedPolicy:
    """Load model and tokenizer. Raises ModelFileError, which names the missing, damaged or unsupported file."""
    require_files(folder)
    make_deterministic()
    tokenizer = load_tokenizer(folder)
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        config.use_cache = True
        with _NothingDrawn():
            model = model_class(config).from_config(config, dtype=torch.float32, attn_implementation="sdpa")
    except (ValueError, KeyError, OSError, TypeError, AttributeError) as error:
        raise ModelFileError(
            f"{folder / 'config.json'} describes no causal model known here: {error}"
        ) from error
    _fill(model, _read_weights(folder, config.model_type), where=folder)
    return LoadedPolicy(model.float().eval(), tokenizer, folder, stop_tokens(folder, config, tokenizer))


def model_class(config: Any) -> Any:
    """Choose transformers' class for a policy with this configuration."""
    return AutoModelForImageTextToText if config.model_type in KINDS else AutoModelForCausalLM


def load_weights(model: Any, path: Path) -> None:
    """Load a file of weights, or of an adapter (`core.models.adapter.load_adapter`), into the model.

    Raises ModelFileError if they do not fit; then no weight has changed.
    """
    tensors = _read_file(path)
    config = adapter_config(path)
    if config is not None:
        load_adapter(model, tensors, config, path)
        return
    _fill(model, tensors, where=path)
    model.unmerged = {}


def weights_of(model: Any) -> dict[str, torch.Tensor]:
    """Return every tensor that defines the model, by name, sorted, without a tied head.

    For a model with an adapter, only the adapter: the rest is frozen.
    """
    if adapter := adapter_of(model):
        return adapter
    tied = (
        set(getattr(model, "all_tied_weights_keys", None) or {})
        if model.config.tie_word_embeddings
        else set()
    )
    return {name: value.detach() for name, value in sorted(model.state_dict().items()) if name not in tied}


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

    Uninitialized memory is not filled: nothing reads it, and filling took a quarter of each decoding step.
    """
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def _read_weights(folder: Path, kind: str) -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = {}
    for path in weight_files(folder):
        weights |= {name_in_model(name, kind): value for name, value in _read_file(path).items()}
    return weights


def _read_file(path: Path) -> dict[str, torch.Tensor]:
    try:
        weights: dict[str, torch.Tensor] = load_file(path)
    except FileNotFoundError:
        raise ModelFileError(f"there are no weights at {path}; only safetensors files are read") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(
            f"{path} is damaged or no safetensors file: {error}. Fetch or write it again."
        ) from error
    return weights


def _fill(model: Any, weights: dict[str, torch.Tensor], *, where: Path) -> None:
    """Copy weights in place, so that optimizers and caches keep their tensors."""
    own = weights_of(model)
    problems = misfits(
        {name: list(value.shape) for name, value in own.items()},
        {name: list(value.shape) for name, value in weights.items()},
    )
    if problems:
        raise ModelFileError(f"the weights in {where} do not fit the model: {'; '.join(problems[:3])}")
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(weights[name])


def state_digest(model: Any, optimizer: torch.optim.Optimizer | None = None) -> str:
    """Compute the sha256 over names and bytes of all weights and optimizer tensors, sorted; 64 hexadecimal characters.

    Optimizer state is named by parameter, so that the order of parameter groups does not matter.
    """
    state = sha256()
    for name, value in weights_of(model).items():
        _add_tensor(state, f"weights/{name}", value)
    if optimizer is not None:
        for name, value in optimizer_tensors(model, optimizer).items():
            _add_tensor(state, f"optimizer/{name}", value)
    return state.hexdigest()


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
    header = f"{name} {value.dtype} {list(value.shape)}\n".encode()
    state.update(len(header).to_bytes(4, "little"))
    state.update(header)
    state.update(whole(value).contiguous().view(-1).view(torch.uint8).numpy())
