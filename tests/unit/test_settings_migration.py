"""Settings files of earlier versions, rewritten."""

from pathlib import Path

import pytest

from hindcast.app.settings.configuration import resolve
from hindcast.app.settings.migration import migrate_toml
from hindcast.core.errors import SettingsError

OLD = """recipe = "mgrpo"

[learner]
# careful steps
clip_low = 0.1  # below the default
# twice
epochs = 2
phase_window = [0.5, 0.9]

[curriculum]
group_size = 4
"""


def test_options_move_into_their_table_with_their_comments(tmp_path: Path) -> None:
    file = tmp_path / "hindcast.toml"
    file.write_text(OLD.replace("phase_window = [0.5, 0.9]\n", ""))
    text, moved = migrate_toml(file)
    assert moved == {"learner.clip_low": "learner.options.clip_low"}
    assert "[learner.options]\n# careful steps\nclip_low = 0.1  # below the default\n" in text
    file.write_text(text)
    settings = resolve(file=file, environment={}).settings
    assert (
        settings.learner.options["clip_low"],
        settings.learner.epochs,
        settings.curriculum.group_size,
    ) == (0.1, 2, 4)
    assert migrate_toml(file) == (text, {})


def test_a_file_with_an_old_name_is_refused_with_the_new_one(tmp_path: Path) -> None:
    file = tmp_path / "hindcast.toml"
    file.write_text(OLD)
    with pytest.raises(
        SettingsError, match=r"learner\.clip_low is now learner\.options\.clip_low.*config migrate"
    ):
        resolve(file=file, environment={})


def test_options_of_an_existing_table_stay_with_the_moved_ones(tmp_path: Path) -> None:
    file = tmp_path / "hindcast.toml"
    file.write_text(OLD + "\n[learner.options]\nclip_high = 0.4\n")
    text, moved = migrate_toml(file)
    assert text.count("[learner.options]") == 1
    assert moved.keys() == {"learner.clip_low", "learner.phase_window"}


def test_a_file_that_cannot_be_rewritten_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "hindcast.toml"
    file.write_text("[learner]\nphase_window = [\n  0.5,\n  0.9,\n]\n")
    with pytest.raises(SettingsError, match="phase_window on its own line"):
        migrate_toml(file)
