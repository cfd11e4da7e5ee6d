"""Exceptions of requests and questions, until `actors.endpoint.client` turns them into a result."""

from hindcast.actors.endpoint.completion import Trouble


class TransientFailure(Exception):
    """A request failed, and a later one may succeed."""

    def __init__(self, reason: str, *, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s
        """Pause that the server asked for; None: none."""


class QuestionFailed(Exception):
    """A question has no usable answer; carries the trouble."""

    def __init__(self, trouble: Trouble, reason: str, *, settled: bool = True) -> None:
        super().__init__(reason)
        self.trouble: Trouble = trouble
        self.settled = settled
        """False: a batch is still running that may answer after all."""
