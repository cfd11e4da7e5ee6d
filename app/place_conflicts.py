"""Settings of where a run's log and blobs are that do not go together, in words."""

from core.errors import SettingsError
from core.settings import Settings
from events.addresses import servers_in
from storage.bucket import check_address, is_bucket
from storage.remote_blobs import KEEPS_PAGES


def place_conflicts(settings: Settings) -> list[str]:
    """What is wrong with the addresses of log and blobs, and with what is asked of them."""
    log, storage = settings.log, settings.storage
    found = []
    try:
        if log.url:
            servers_in(log.url)
        if is_bucket(storage.blobs):
            check_address(storage.blobs)
    except SettingsError as error:
        found.append(str(error))
    if not log.url and log.replicas > 1:
        found.append(
            f"log.replicas = {log.replicas} needs a cluster of as many servers, and log.url is empty, which means one server of "
            "our own: set log.url, or leave replicas at 1"
        )
    if is_bucket(storage.blobs) and storage.keep_page_episodes:
        found.append(KEEPS_PAGES)
    return found
