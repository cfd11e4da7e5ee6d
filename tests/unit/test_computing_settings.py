"""Where and how the learner computes: what does not go together is refused, and what is missing is named."""

import os
import subprocess
import sys
from typing import Any

import pytest

from hindcast.app.settings.checks.cross_checks import find_conflicts
from hindcast.app.system.learner_ranks import RankEnded, RankProcesses, require_place
from hindcast.core.errors import SettingsError
from hindcast.core.models.arithmetic import device_for, require_device
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.core.settings.section import RECORDED
from hindcast.learner.distributed.rendezvous import LeaderMissing, Place, found_store, open_store, place_in
from hindcast.learner.numerics import device_then, fingerprint

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("learner", "said"),
    [
        ({"attention": "flash_attention_2"}, "learner.precision = 'bf16'"),
        ({"processes": 2, "offload_optimizer": True}, "leave it off"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(learner: dict[str, Any], said: str) -> None:
    (found,) = find_conflicts(Settings(learner=LearnerSettings(**learner)))
    assert said in found


def test_new_runs_have_the_alarm_on_a_mismatch_and_runs_recorded_without_it_do_not() -> None:
    assert Settings().learner.mismatch_alarm == 0.01
    recorded = Settings.model_validate({"learner": {"algorithm": "grpo"}}, context=RECORDED)
    assert recorded.learner.mismatch_alarm == 0


def test_new_runs_use_a_gpu_for_what_is_computed_in_process_and_runs_recorded_before_do_not() -> None:
    assert Settings().policy.model_device == "auto"
    assert Settings.model_validate({"policy": {"engine": "vllm"}}).policy.model_device == "cpu"
    recorded = Settings.model_validate({"policy": {}}, context=RECORDED)
    assert (recorded.policy.device, recorded.policy.model_device) == ("cpu", "cpu")


def test_a_gpu_that_is_not_there_is_asked_for_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert device_for("auto").type == device_for("cuda").type == "cpu"
    with pytest.raises(SettingsError, match="no GPU here"):
        require_device("cuda", setting="learner.device")


def test_a_process_reads_its_place_from_where_its_leader_wrote_it() -> None:
    place = Place(1, 1, 4)
    assert place_in(place.environment(29500)) == place
    assert place_in({}) is None
    with pytest.raises(
        SettingsError, match=r"learner.processes = 2, and the environment \(WORLD_SIZE\) says 4"
    ):
        require_place(place, LearnerSettings(processes=2))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"LOCAL_RANK": ""}, "LOCAL_RANK=. Start it by torchrun"),
        ({"WORLD_SIZE": "four", "MASTER_ADDR": ""}, "WORLD_SIZE=four, MASTER_ADDR=. Start"),
    ],
)
def test_a_place_that_is_told_in_part_is_a_worded_error(change: dict[str, str], said: str) -> None:
    told = Place(1, 1, 4).environment(29500) | change
    with pytest.raises(SettingsError, match=said):
        place_in({name: value for name, value in told.items() if value})


def test_a_leader_that_names_no_address_is_a_worded_error(monkeypatch: pytest.MonkeyPatch) -> None:
    torchruns = open_store(2)
    for name, value in Place(1, 1, 2).environment(torchruns.port).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("torch.distributed.is_torchelastic_launched", lambda: True)
    monkeypatch.setattr("hindcast.learner.distributed.rendezvous.MEET_S", 0.2)
    with pytest.raises(LeaderMissing, match=f"named no address at 127.0.0.1:{torchruns.port}"):
        found_store(Place(1, 1, 2))


def test_a_companion_that_ended_is_named() -> None:
    ended = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"], env=os.environ)
    ended.wait()
    with pytest.raises(RankEnded, match=f"process 1 .* {ended.pid}.* status 7"):
        RankProcesses([ended]).require_all()


def test_a_run_says_how_many_processes_computed_it_and_is_recomputed_where_it_was() -> None:
    assert fingerprint(1, processes=2).platform == f"{fingerprint(1).platform} in 2 processes"
    assert device_then(fingerprint(1, processes=2)) == "cpu"
