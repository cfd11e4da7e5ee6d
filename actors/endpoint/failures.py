"""How a request or a question fails, until `actors.endpoint.client` says it in a result."""

from hindcast.actors.endpoint.completion import Trouble


class TransientFailure(Exception):
    """A request came to nothing, and a later one may not."""

    def __init__(self, reason: str, *, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s
        """As the server asked; None: it did not."""


class QuestionFailed(Exception):
    """A question came to nothing."""

    def __init__(self, trouble: Trouble, reason: str, *, settled: bool = True) -> None:
        super().__init__(reason)
        self.trouble: Trouble = trouble
        self.settled = settled
        """False: a batch is still under way that may answer after all."""
