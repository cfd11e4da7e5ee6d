"""The relabelers there are."""

from actors.relabel.base import Relabeler
from actors.relabel.rules import RuleRelabeler
from core.errors import SettingsError
from core.settings import RelabelerSettings


def relabeler_of(settings: RelabelerSettings) -> Relabeler:
    """The relabeler that the settings name. Raises SettingsError where they name none."""
    if settings.kind == "rules":
        return RuleRelabeler(most=settings.goals)
    raise SettingsError("relabeler.kind is empty: nothing is relabelled. Set it to rules.")
