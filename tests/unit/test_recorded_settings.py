"""Settings of existing runs: upper bounds that came later refuse new settings alone."""

import pytest
from pydantic import ValidationError

from hindcast.app.settings.configuration import Layer, merge, merge_recorded
from hindcast.core.errors import SettingsError
from hindcast.core.settings.changes import apply_change, decode_settings
from hindcast.core.settings.changes import merge as merge_changes
from hindcast.core.settings.schema import Settings
from hindcast.learner.planners.base import config_digest

LONG_S = 1e12
RECORDED = {"curriculum": {"lease_s": LONG_S}}


def test_recorded_values_above_an_upper_bound_stay_readable() -> None:
    settings = decode_settings(RECORDED)
    assert settings.curriculum.lease_s == LONG_S
    assert apply_change(settings, {"learner": {"epochs": 3}}).curriculum.lease_s == LONG_S
    layer = Layer(source="the run", values={"curriculum.lease_s": LONG_S})
    assert merge_recorded([layer], recipe="mgrpo").settings.curriculum.lease_s == LONG_S


def test_new_settings_are_held_to_every_bound() -> None:
    with pytest.raises(ValidationError, match="less than or equal"):
        Settings.model_validate(RECORDED)
    layer = Layer(source="--set", values={"curriculum.lease_s": LONG_S})
    with pytest.raises(SettingsError, match=r"curriculum\.lease_s"):
        merge([layer], recipe="mgrpo")


def test_a_default_that_is_new_does_not_hold_for_runs_recorded_before() -> None:
    """Their ranks added in an order of their own, so that nobody can repeat it."""
    assert Settings.model_validate({"learner": {"processes": 2}}).learner.exact_ranks
    recorded = decode_settings({"learner": {"processes": 2}})
    assert not recorded.learner.exact_ranks
    assert not apply_change(recorded, {"learner": {"epochs": 3}}).learner.exact_ranks
    layer = Layer(source="the run", values={"learner.processes": 2})
    assert not merge_recorded([layer], recipe="mgrpo").settings.learner.exact_ranks
    new = merge([layer], recipe="mgrpo").settings
    assert new.learner.exact_ranks
    assert decode_settings(new.model_dump(mode="json")) == new


@pytest.mark.parametrize("learner", [{"epochs": 0}, {"epochs": "many"}, {"no_such": 1}])
def test_recorded_settings_are_held_to_all_else(learner: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        decode_settings({"learner": learner})


FLAT = {"learner": {"algorithm": "dpo", "dpo_beta": 0.5, "clip_low": 0.1, "epochs": 3}}
"""As earlier versions recorded settings: the options of all algorithms beside each other."""


def test_options_recorded_under_old_names_are_those_of_the_algorithm() -> None:
    learner = decode_settings(FLAT).learner
    assert learner.options == {"pair_batch": 16, "dpo_beta": 0.5}
    assert learner.epochs == 3


@pytest.mark.parametrize("change", [{"dpo_beta": 0.7}, {"options": {"dpo_beta": 0.7}}])
def test_a_change_holds_under_its_old_name_and_its_new_one(change: dict[str, object]) -> None:
    settings = decode_settings(FLAT)
    assert apply_change(settings, {"learner": change}).learner.options["dpo_beta"] == 0.7
    assert decode_settings(merge_changes(FLAT, {"learner": change})).learner.options["dpo_beta"] == 0.7


def test_decoding_leaves_the_recorded_settings_and_their_digest_as_they_are() -> None:
    before = config_digest(FLAT)
    decode_settings(FLAT)
    assert config_digest(FLAT) == before
