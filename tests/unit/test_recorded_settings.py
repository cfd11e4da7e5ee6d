"""Settings of existing runs: upper bounds that came later refuse new settings alone."""

import pytest
from pydantic import ValidationError

from hindcast.app.settings.configuration import Layer, merge, merge_recorded
from hindcast.core.errors import SettingsError
from hindcast.core.settings.changes import changed, decode_settings
from hindcast.core.settings.schema import Settings

LONG_S = 1e12
RECORDED = {"curriculum": {"lease_s": LONG_S}}


def test_recorded_values_above_an_upper_bound_stay_readable() -> None:
    settings = decode_settings(RECORDED)
    assert settings.curriculum.lease_s == LONG_S
    assert changed(settings, {"learner": {"epochs": 3}}).curriculum.lease_s == LONG_S
    layer = Layer(source="the run", values={"curriculum.lease_s": LONG_S})
    assert merge_recorded([layer], recipe="mgrpo").settings.curriculum.lease_s == LONG_S


def test_new_settings_are_held_to_every_bound() -> None:
    with pytest.raises(ValidationError, match="less than or equal"):
        Settings.model_validate(RECORDED)
    layer = Layer(source="--set", values={"curriculum.lease_s": LONG_S})
    with pytest.raises(SettingsError, match=r"curriculum\.lease_s"):
        merge([layer], recipe="mgrpo")


@pytest.mark.parametrize("learner", [{"epochs": 0}, {"epochs": "many"}, {"no_such": 1}])
def test_recorded_settings_are_held_to_all_else(learner: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        decode_settings({"learner": learner})
