"""The store's control token."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hindcast.app.system.listen_addresses import control_token


def test_all_who_ask_at_once_get_one_whole_token_that_only_the_owner_can_read(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as askers:
        tokens = list(askers.map(control_token, [tmp_path] * 32))
    assert len(set(tokens)) == 1
    assert len(tokens[0]) >= 32
    (file,) = (tmp_path / "secrets").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
