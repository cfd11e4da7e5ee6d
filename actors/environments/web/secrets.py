"""Secrets that a task names as `${NAME}`: inserted from the environment on use, removed from all output."""

import os
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from hindcast.actors.environments.web.definition import PLACEHOLDER
from hindcast.core.errors import EnvironmentFailed, SettingsError

ADDRESS = ":/"
"""Not escaped in addresses: a secret may be the beginning of one."""


class Secrets:
    """The secrets of one visit. Remembers the secrets it inserted, so that no message repeats them."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self._values: dict[str, str] = {}

    def learn(self, names: Iterable[str]) -> None:
        """Remove these from output too: a command sees them although they are not inserted."""
        for name in names:
            if value := self._environment.get(name):
                self._values[name] = value

    def put_in(self, text: str) -> str:
        """Replace the placeholders of a text by the secrets.

        Raises:
            EnvironmentFailed: a variable is not set.
        """
        for name in PLACEHOLDER.findall(text):
            value = self._environment.get(name)
            if value is None:
                raise EnvironmentFailed(
                    f"the task names the secret ${{{name}}}, and the environment of this process has no variable {name}. "
                    "Set it where hindcast is started."
                )
            self._values[name] = value
        return PLACEHOLDER.sub(lambda match: self._values[match.group(1)], text)

    def put_in_address(self, text: str) -> str:
        """The same for an address, with the secrets escaped. Raises EnvironmentFailed."""
        self.put_in(text)
        return PLACEHOLDER.sub(lambda match: quote(self._values[match.group(1)], safe=ADDRESS), text)

    def take_out(self, text: str) -> str:
        """Replace every known secret in a text by its placeholder, the longest first."""
        for name, value in sorted(self._values.items(), key=lambda item: -len(item[1])):
            for spelled in filter(None, (value, quote(value, safe=""), quote(value, safe=ADDRESS))):
                text = text.replace(spelled, f"${{{name}}}")
        return text


def require_secrets(names: Iterable[str], environment: Mapping[str, str] | None = None) -> None:
    """Check that every variable is set. Raises SettingsError, naming the first that is not."""
    variables = os.environ if environment is None else environment
    for name in sorted(names):
        if name not in variables:
            raise SettingsError(
                f"a task names the secret ${{{name}}}, and there is no environment variable {name}. Set it: export {name}=…"
            )
