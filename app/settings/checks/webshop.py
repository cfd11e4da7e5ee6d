"""The data that settings of WebShop name."""

from hindcast.actors.environments.webshop.shop import shop_of
from hindcast.actors.environments.webshop.tasks import ENVIRONMENT
from hindcast.core.settings.schema import Settings


def require_webshop_data(settings: Settings) -> None:
    """Read the files that a run would play on. Raises SettingsError naming file, item and field."""
    if ENVIRONMENT in settings.curriculum.environments and settings.sites.webshop_items:
        shop_of(settings.sites)
