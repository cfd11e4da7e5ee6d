"""What a site's back end may answer to a check, and what is said of it."""

from unittest.mock import Mock

import pytest

from hindcast.actors.environments.web.definition import Check
from hindcast.actors.environments.web.secrets import Secrets
from hindcast.actors.environments.web.site import run_check
from hindcast.actors.http_calls import HttpResponse


@pytest.mark.parametrize("body", ["{", "[" * 100_000, "1" * 5000])
async def test_an_answer_that_cannot_be_read_is_an_error_in_words(
    monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    async def answered(*_: object, **__: object) -> HttpResponse:
        return HttpResponse(status=200, body=body.encode())

    monkeypatch.setattr("hindcast.actors.environments.web.site.call", answered)
    check = Check(of="http", address="/api", field="state", exact="paid")
    found = await run_check(Mock(), Mock(start="http://127.0.0.1/"), check, Mock(spec=Secrets))
    assert "its answer is not JSON" in found.error
