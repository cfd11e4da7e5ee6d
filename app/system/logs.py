"""Log messages of the processes on standard error, one a line, as text or JSON; libraries' messages included.

In JSON every object has the process, role, run, trace and span, and the position of the event that it is about. Supervisors
load this module, too, so large imports come only when they are needed.
"""

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from hindcast.app.system.processes import read_json
from hindcast.core.text.plain_values import parse_toml

LEVELS = ("debug", "info", "warning", "error")
QUIET_LIBRARIES = "warning"
"""Level of libraries' messages, unless `telemetry.log_level` is `debug`."""


class LogStyle(NamedTuple):
    """Format and level of messages."""

    format: str = "text"
    level: str = "info"

    @property
    def is_json(self) -> bool:
        """Whether messages are JSON."""
        return self.format == "json"


def current_run(home: Path) -> str:
    """Name of this home's current run; empty if there is none yet."""
    launch = read_json(home / "current.json")
    return str(launch.get("run", "")) if isinstance(launch, dict) else ""


def style_of(home: Path) -> LogStyle:
    """The style of this home's current run, read before the run is opened; the default if there is no run.

    Wrong settings are ignored here; opening the run reports them.
    """
    try:
        content = parse_toml((home / "runs" / current_run(home) / "settings.toml").read_text())
    except (OSError, ValueError):
        return LogStyle()
    section = content.get("telemetry")
    if not isinstance(section, dict):
        return LogStyle()
    style = LogStyle(section.get("log_format", "text"), section.get("log_level", "info"))
    return style if style.level in LEVELS else LogStyle()


def configure_logging(style: LogStyle, *, process: str, role: str, run: str = "") -> None:
    """Write the messages of this process and its libraries in this style from now on."""
    import structlog

    def add_origin(
        _logger: Any, _method: str, message: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        origin = {"process": process, "role": role, "run": run} if style.is_json else {"process": process}
        return {**{name: value for name, value in origin.items() if value}, **message}

    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        add_origin,
    ]
    if style.is_json:
        stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
        # without the values of variables, which the library adds: they may hold passwords and page content
        tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        shared += [stamp, _add_trace, structlog.processors.ExceptionRenderer(tracebacks)]
        renderer: structlog.typing.Processor = structlog.processors.JSONRenderer(default=str)
    else:
        # the traceback follows its message, as in Python
        shared += [structlog.processors.TimeStamper(fmt="%H:%M:%S"), structlog.processors.format_exc_info]
        on_one_line = structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"])

        def renderer(logger: Any, method: str, message: structlog.typing.EventDict) -> str:
            below = message.pop("exception", "")
            return "\n".join(filter(None, (str(on_one_line(logger, method, message)), below)))

    level = getattr(logging, style.level.upper())
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level if style.level == "debug" else max(level, getattr(logging, QUIET_LIBRARIES.upper())))
    logging.captureWarnings(True)


def _add_trace(_logger: Any, _method: str, message: Any) -> Any:
    """Add the ids of the current span."""
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        message["trace_id"] = f"{context.trace_id:032x}"
        message["span_id"] = f"{context.span_id:016x}"
    return message


def tell(style: LogStyle, process: str, text: str, *, level: str = "error", **more: str) -> None:
    """Write one message without a logger: for supervisors, and for a worker's last message."""
    if style.is_json:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        message = {"process": process, "event": text, "level": level, "timestamp": now, **more}
        sys.stderr.write(json.dumps(message, ensure_ascii=False) + "\n")
    else:
        sys.stderr.write(f"{text}\n")
