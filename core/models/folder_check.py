"""Check of a model folder before use: every requirement of a run, and what to do if it is not met.

Reads configuration, tokenizer and the headers of the weights, never a weight. `actors.engines.round_trip` checks by
computing.
"""

import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NoReturn

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig

from hindcast.core.errors import HindcastError, ModelFileError
from hindcast.core.models.engine import find_engine
from hindcast.core.models.model_files import (
    CONFIG,
    GENERATION,
    context_length,
    misfits,
    read_config_file,
    require_files,
    stop_tokens,
    text_config,
    weight_files,
)
from hindcast.core.models.policy import model_class, weights_of
from hindcast.core.models.samples import EXAMPLE, PAGE, check_pictures
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.models.vision import KINDS, name_in_model
from hindcast.core.prompts.chat_frame import STAND_IN, chat_frame, encode_text, render_chat, turns_of
from hindcast.core.prompts.prompt import build_prompt
from hindcast.core.prompts.rendering import RENDERERS
from hindcast.core.settings.schema import Settings
from hindcast.core.text.printable import one_line


@contextmanager
def bounded_use(*, activity: str, seconds: float, most_bytes: int | None = None) -> Iterator[None]:
    """Raise ModelFileError if the block takes longer than `seconds`, or more than `most_bytes` of additional memory.

    A chat template is a program: it may loop forever, or take all memory by a repeated string. Outside the main thread there is no
    alarm, and time is not bounded.
    """

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise ModelFileError(
            f"{activity} took longer than {seconds:g} s and was stopped: a chat template may loop without end. Fetch it again."
        )

    alarmed = threading.current_thread() is threading.main_thread()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    address_space = _address_space()
    if (
        most_bytes is not None
        and address_space
        and (limits[0] == resource.RLIM_INFINITY or address_space + most_bytes < limits[0])
    ):
        resource.setrlimit(resource.RLIMIT_AS, (address_space + most_bytes, limits[1]))
    before = signal.signal(signal.SIGALRM, stop) if alarmed else None
    started_at = time.monotonic()
    outer_s = signal.setitimer(signal.ITIMER_REAL, seconds)[0] if alarmed else 0.0
    try:
        yield
    except MemoryError:
        raise ModelFileError(
            f"{activity} takes more memory than it may and was stopped. Fetch it again."
        ) from None
    finally:
        if alarmed:
            signal.signal(signal.SIGALRM, before)
            # restore an outer alarm
            left_s = max(0.001, outer_s - (time.monotonic() - started_at)) if outer_s else 0.0
            signal.setitimer(signal.ITIMER_REAL, left_s)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def _address_space() -> int:
    """Return the bytes of this process's address space; 0 if unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 0
    return pages * resource.getpagesize()


Verdict = Literal["ok", "note", "failed"]
FLOAT32 = 4
ADAM = 16
"""Bytes per trained weight: the weight, its gradient and AdamW's two moments, float32 each."""
MIB = 2**20
GROUNDS = ("files", "model", "tokenizer", "template")
"""Parts on which all later ones depend."""
LOOK_S = (60.0, 5.0)
"""Time limits in seconds: of one part (the slowest, a large tokenizer, takes a few), and of a chat template (milliseconds)."""
TEMPLATE_BYTES = 1024**3
"""Additional memory that a chat template may take."""
LONGEST_SAID = 400
"""Most characters of a library's message that are shown."""


class CheckFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking one part of what a run needs, such as a part of a model folder."""

    part: str
    verdict: Verdict
    """`note`: a run works, but the result needs attention."""
    result: str
    fix: str = ""
    """What to do; empty if nothing is wrong."""


class ModelFolder(msgspec.Struct, kw_only=True):
    """What the checks have read of a model folder so far."""

    path: Path
    config: Any = None
    tokenizer: Any = None
    shapes: dict[str, list[int]] = {}
    """Shapes of the stored tensors by name."""
    bytes: int = 0
    """Bytes of all weight files."""


def check_folder(path: Path, settings: Settings) -> list[CheckFinding]:
    """Check a folder without computing, part by part; a failed part skips all that depend on it."""
    folder = ModelFolder(path=path)
    findings: list[CheckFinding] = []
    sends_pictures = settings.actors.screenshot_observation != "off"
    checks: list[tuple[str, Callable[[ModelFolder, Settings], CheckFinding]]] = [
        ("files", _files),
        ("model", _model),
        ("tokenizer", _tokenizer),
        ("template", _template),
        ("ends", _ends),
        ("pictures", _pictures),
        ("context", _context),
        ("pages", _pages),
        ("answers", _answers),
        ("memory", _memory),
    ]
    for part, check in checks:
        if part == "pictures" and not sends_pictures:
            continue
        try:
            most_bytes = TEMPLATE_BYTES if part == "template" else None
            with bounded_use(
                activity=f"the {part} of {path}", seconds=LOOK_S[part == "template"], most_bytes=most_bytes
            ):
                findings.append(check(folder, settings))
        except HindcastError as error:
            findings.append(CheckFinding(part=part, verdict="failed", result=one_line(str(error))))
            if part in GROUNDS:
                return findings
        except (KeyboardInterrupt, SystemExit):
            raise
        except (
            BaseException
        ) as error:  # transformers and tokenizers on untrusted files; a panic of Rust is not an Exception
            findings.append(_fault(folder.path, part, error))
            if part in GROUNDS:
                return findings
    return findings


def _fault(path: Path, part: str, error: BaseException) -> CheckFinding:
    """Turn a library's exception into a finding, on one line."""
    message = one_line(f"{type(error).__name__}: {error}")
    return CheckFinding(
        part=part,
        verdict="failed",
        result=message if len(message) <= LONGEST_SAID else f"{message[:LONGEST_SAID]}…",
        fix=f"A file in {path} holds a value that cannot be worked with. Fetch the model's files again.",
    )


def _files(folder: ModelFolder, settings: Settings) -> CheckFinding:
    require_files(folder.path)
    folder.shapes, folder.bytes = stored_shapes(folder.path)
    return _ok("files", f"{len(weight_files(folder.path))} of safetensors, {folder.bytes / MIB:.1f} MiB")


def stored_shapes(path: Path) -> tuple[dict[str, list[int]], int]:
    """Read the shapes of a folder's tensors by name, from the headers only, and the bytes of their files.

    Raises ModelFileError.
    """
    shapes: dict[str, list[int]] = {}
    files = weight_files(path)
    for file in files:
        if file.exists() and not file.is_file():
            raise ModelFileError(
                f"{file} is no regular file: only safetensors files are read. Fetch it again."
            )
        try:
            with safe_open(file, "pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118  # it is not a mapping
                    shapes[name] = list(tensors.get_slice(name).get_shape())
        except FileNotFoundError:
            raise ModelFileError(f"there are no weights at {file}; only safetensors files are read") from None
        except (SafetensorError, OSError) as error:
            raise ModelFileError(
                f"{file} is damaged or no safetensors file: {error}. Fetch it again."
            ) from error
    return shapes, sum(file.stat().st_size for file in files)


def loading_bytes(path: Path) -> int:
    """Compute the peak memory in bytes of loading a folder: the stored weights plus the float32 model."""
    shapes, size = stored_shapes(path)
    return size + _count(shapes) * FLOAT32


def _model(folder: ModelFolder, settings: Settings) -> CheckFinding:
    content = read_config_file(folder.path)
    kind = content.get("model_type")
    sees = kind in KINDS
    if "vision_config" in content and not sees:
        raise ModelFileError(
            f"{folder.path / CONFIG}: {kind} reads pictures in a way that Hindcast does not support; it supports {', '.join(KINDS)}. "
            "Use such a model, or the language model of the same family."
        )
    if sees and not find_engine(settings.policy.engine).traits.reads_pictures:
        raise ModelFileError(
            f"{folder.path / CONFIG}: {kind} is served in process alone. Set policy.engine = 'in_process'."
        )
    try:
        folder.config = AutoConfig.from_pretrained(
            folder.path, trust_remote_code=False, local_files_only=True
        )
        with torch.device("meta"):
            model = model_class(folder.config).from_config(folder.config, dtype=torch.float32)
    except (ValueError, KeyError, OSError, TypeError, AttributeError) as error:
        raise ModelFileError(
            f"{folder.path / CONFIG} describes no causal model known here: {error}"
        ) from error
    if not getattr(text_config(folder.config), "num_attention_heads", None):
        raise ModelFileError(
            f"{folder.path / CONFIG}: {type(model).__name__} has no attention heads. Answers are sampled with keys and values kept "
            "for each position, which a model that carries a state from token to token has none of. Use a transformer."
        )
    stored_shapes = {name_in_model(name, str(kind)): shape for name, shape in folder.shapes.items()}
    problems = misfits({name: list(value.shape) for name, value in weights_of(model).items()}, stored_shapes)
    if problems:
        raise ModelFileError(
            f"the weights in {folder.path} are not those of {type(model).__name__}: {'; '.join(problems[:3])}. Fetch "
            "configuration and weights of the same model."
        )
    tied = ", head tied to the embedding" if folder.config.tie_word_embeddings else ""
    summary = f"{type(model).__name__}, {_count(folder.shapes) / 1e6:.1f} M parameters{tied}"
    sends_pictures = settings.actors.screenshot_observation != "off"
    return _ok(
        "model", f"{summary}; reads pictures, and is shown none" if sees and not sends_pictures else summary
    )


def _tokenizer(folder: ModelFolder, settings: Settings) -> CheckFinding:
    folder.tokenizer = load_tokenizer(folder.path)
    vocab_size, token_count = int(text_config(folder.config).vocab_size), len(folder.tokenizer)
    if token_count > vocab_size:
        raise ModelFileError(
            f"the tokenizer in {folder.path} knows {token_count} tokens, the model {vocab_size}: it is another model's, or tokens were added "
            "and the embedding was not enlarged."
        )
    scaffold = settings.scaffold
    decoder = type(folder.tokenizer.backend_tokenizer.decoder).__name__
    if scaffold.states and scaffold.constrained and decoder != "ByteLevel":
        raise ModelFileError(
            f"it decodes by {decoder}, and answers are constrained for byte-level tokenizers alone. Set "
            "scaffold.constrained = false."
        )
    return _ok("tokenizer", f"{token_count} tokens of {vocab_size}, decoded by {decoder}")


def _template(folder: ModelFolder, settings: Settings) -> CheckFinding:
    """Check that a framed prompt equals what the chat template itself renders."""
    tokenizer, actors = folder.tokenizer, settings.actors
    thinking = actors.answer_format == "thinking"
    frame = chat_frame(tokenizer, thinking=thinking)
    reads_chat = "orm" in settings.judge.judges or settings.relabeler.kind == "learned"
    if actors.framing != "chat/1":
        turns_of(tokenizer, actors.framing)
    if actors.framing != "chat/1" and not reads_chat:  # their prompts use the chat template in any case
        return _ok("template", f"{actors.framing}; the folder's own, {frame.name}, is not used")
    if not frame.to_answer or not frame.to_user:
        raise ModelFileError(
            f"the chat template of {folder.path} puts nothing between a page and the answer to it. Of one of WebRL's published "
            "checkpoints set actors.framing = 'webrl/2'; else give the folder its family's template."
        )
    rounds = (f"Task Instruction: {EXAMPLE}\n\nRound 0\n\n{STAND_IN}", EXAMPLE, f"Round 1\n\n{EXAMPLE}")
    rendered = render_chat(tokenizer, rounds, thinking=thinking)
    ids = build_prompt(
        tokenizer,
        instruction=EXAMPLE,
        answers=[EXAMPLE],
        page_text=EXAMPLE,
        max_tokens=2**20,
        thinking=thinking,
    ).ids
    if tokenizer.decode(ids) != rendered:
        raise ModelFileError(
            f"a prompt reads {tokenizer.decode(ids)!r} where the chat template of {folder.path} has {rendered!r}: the tokenizer "
            "adds or loses something at the ends of texts. Use a model with a byte-level tokenizer."
        )
    bos = tokenizer.bos_token_id
    if bos is not None and ids.count(bos) > 1 and frame.opening[:2] == (bos, bos):
        raise ModelFileError(
            f"the chat template of {folder.path} begins with {tokenizer.bos_token} twice. Remove one."
        )
    rendered_ids = tokenizer(rendered, add_special_tokens=False)["input_ids"]
    differing = "" if rendered_ids == ids else "; some tokens at the borders of contents are cut otherwise"
    result = f"{frame.name}, turns closed by {_shown(tokenizer, [turns_of(tokenizer).end])}{differing}"
    if bos is not None and bos in tokenizer("a")["input_ids"] and bos not in frame.opening:
        return _note(
            "template",
            f"{result}; without {tokenizer.bos_token}, which the tokenizer puts before other texts",
            fix="Prompts are as the template says. If the model was trained with it, add it to the template.",
        )
    return _ok("template", result)


def _ends(folder: ModelFolder, settings: Settings) -> CheckFinding:
    stops = stop_tokens(folder.path, folder.config, folder.tokenizer)
    stop_text = _shown(folder.tokenizer, stops)
    if not (folder.path / GENERATION).is_file():
        return _note(
            "ends",
            f"{stop_text}, by configuration and template: there is no {GENERATION}",
            fix=f"Fetch {GENERATION} too: it may name further ends.",
        )
    return _ok("ends", stop_text)


def _pictures(folder: ModelFolder, settings: Settings) -> CheckFinding:
    return _ok("pictures", check_pictures(folder.path, folder.tokenizer, settings))


def _context(folder: ModelFolder, settings: Settings) -> CheckFinding:
    longest = context_length(folder.config)
    actors = settings.actors
    needed = actors.max_prompt_tokens + actors.max_answer_tokens
    if "orm" in settings.judge.judges:
        needed = max(needed, settings.judge.orm_prompt_tokens + 1)
    if longest is None:
        return _note(
            "context",
            f"the configuration names no length; prompt and answer take up to {needed}",
            fix="Look up what the model was trained on, and set actors.max_prompt_tokens so.",
        )
    if needed > longest:
        raise ModelFileError(
            f"prompt and answer take up to {needed} tokens, and the model has {longest} positions. Lower "
            "actors.max_prompt_tokens, actors.max_answer_tokens or judge.orm_prompt_tokens."
        )
    return _ok("context", f"{longest} positions, of which prompt and answer take up to {needed}")


def _pages(folder: ModelFolder, settings: Settings) -> CheckFinding:
    """Report how many tokens each renderer takes for a sample page."""
    actors = settings.actors
    turns = turns_of(folder.tokenizer, actors.framing)
    fixed = len(turns.head(EXAMPLE, [EXAMPLE] * 3, [None] * 3)) + len(turns.closing)
    needs = {name: len(encode_text(folder.tokenizer, render(PAGE))) for name, render in RENDERERS.items()}
    counts = ", ".join(f"{name} {tokens}" for name, tokens in needs.items())
    result = f"of {len(PAGE.nodes)} elements take tokens: {counts}; three rounds round them {fixed}"
    needed = fixed + needs[actors.renderer]
    if needed <= actors.max_prompt_tokens:
        return _ok("pages", result)
    return _note(
        "pages",
        result,
        fix=f"actors.max_prompt_tokens = {actors.max_prompt_tokens} cuts such pages by {actors.renderer}: it takes {needed}.",
    )


def _answers(folder: ModelFolder, settings: Settings) -> CheckFinding:
    actors = settings.actors
    needed = len(encode_text(folder.tokenizer, EXAMPLE)) + 1
    result = f"a usual one takes {needed} tokens of {actors.max_answer_tokens}"
    if actors.answer_format == "plain" and needed > actors.max_answer_tokens:
        return _note("answers", result, fix="Raise actors.max_answer_tokens: it would be cut.")
    return _ok("answers", result)


def _memory(folder: ModelFolder, settings: Settings) -> CheckFinding:
    weights = _count(folder.shapes) * FLOAT32
    actor = weights + settings.policy.max_batch * cache_bytes(
        folder.config, settings.actors.max_prompt_tokens + settings.actors.max_answer_tokens
    )
    trained = weights if settings.learner.lora_rank else _count(folder.shapes) * ADAM
    kind = "with an adapter" if settings.learner.lora_rank else "whole"
    return _ok(
        "memory",
        f"about {actor / MIB:.0f} MiB for an actor with a full batch, {trained / MIB:.0f} MiB for the learner ({kind}) before "
        "activations and a KL reference",
    )


def cache_bytes(config: Any, tokens: int) -> int:
    """Compute the bytes of a float32 KV cache: 2 x layers x key-value heads x head width per position."""
    text = text_config(config)
    heads = int(text.num_attention_heads)
    groups = int(getattr(text, "num_key_value_heads", None) or heads)
    width = int(getattr(text, "head_dim", None) or text.hidden_size // heads)
    return 2 * int(text.num_hidden_layers) * groups * width * tokens * FLOAT32


def _count(shapes: Mapping[str, Sequence[int]]) -> int:
    return sum(int(torch.Size(shape).numel()) for shape in shapes.values())


def _shown(tokenizer: Any, ids: tuple[int, ...] | list[int]) -> str:
    return ", ".join(f"{tokenizer.decode([number])} ({number})" for number in ids)


def _ok(part: str, result: str) -> CheckFinding:
    return CheckFinding(part=part, verdict="ok", result=result)


def _note(part: str, result: str, *, fix: str) -> CheckFinding:
    return CheckFinding(part=part, verdict="note", result=result, fix=fix)
