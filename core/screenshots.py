"""Settings of screenshots: which windows are photographed, how often, how large."""

from typing import Annotated, Literal

from pydantic import Field

from core.section import Section


class ScreenshotSettings(Section):
    """Pictures of what a person would have seen, kept beside the log."""

    screenshots: Literal["off", "ends", "all"] = "ends"
    """Pictures kept of an episode: none; of its first and last page and of what failed steps led to; of every page."""
    screenshot_rate: Annotated[float, Field(gt=0, le=100)] = 0.5
    """Pictures a second that one actor takes on average, each about 30 ms of a processor: an episode that begins while
    they are used up has none, every other one has all of its own."""
    screenshot_width: Annotated[int, Field(ge=64, le=1920)] = 640
    """Width of a picture in pixels; a window that is narrower is not enlarged."""
    screenshot_quality: Annotated[int, Field(ge=1, le=100)] = 60
    """Quality of its JPEG; about 35 kB at 60 and 640 pixels."""
    screenshot_timeout_s: Annotated[float, Field(gt=0, le=30)] = 2.0
    """One picture; a page that is not drawn by then has none, and the step goes on."""
