"""Settings of WebShop that are each allowed but do not go together, in words."""

from hindcast.actors.environments.webshop.shop import shop_of
from hindcast.actors.environments.webshop.tasks import ENVIRONMENT
from hindcast.core.settings.schema import Settings


def webshop_conflicts(settings: Settings) -> list[str]:
    """What is wrong with where WebShop's tasks come from."""
    sites, found = settings.sites, []
    if sites.webshop_items and sites.webshop_url:
        found.append(
            "sites.webshop_items and sites.webshop_url are both set: tasks come from data files or from a running server. "
            "Empty one of them"
        )
    if bool(sites.webshop_items) != bool(sites.webshop_instructions):
        found.append(
            "sites.webshop_items and sites.webshop_instructions need each other: products, and their attributes in "
            "items_ins_v2_….json"
        )
    if sites.webshop_human and not sites.webshop_items:
        found.append("sites.webshop_human needs the products that it speaks of: sites.webshop_items")
    if ENVIRONMENT in settings.curriculum.environments and not (sites.webshop_items or sites.webshop_url):
        found.append(
            "curriculum.environments names webshop: set sites.webshop_items and sites.webshop_instructions, or "
            "sites.webshop_url (docs/webshop.md)"
        )
    return found


def require_webshop_data(settings: Settings) -> None:
    """Read the files that a run would play on. Raises SettingsError naming file, item and field."""
    if ENVIRONMENT in settings.curriculum.environments and settings.sites.webshop_items:
        shop_of(settings.sites)
