"""Settings: which source wins, where a value came from, and how a mistake is told."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindcast.app.settings.configuration import (
    DEFAULT_SOURCE,
    Resolved,
    fields,
    flatten,
    merge,
    read_file,
    resolve,
    to_toml,
)
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import Settings
from hindcast.learner.recipes import DEFAULT, load_recipe, recipe_names


def settle(
    folder: Path, *overrides: str, toml: str = "", recipe: str | None = None, **environment: str
) -> Resolved:
    if toml:
        (folder / "hindcast.toml").write_text(toml)
    return resolve(recipe=recipe, environment=environment, overrides=overrides, folder=folder)


def test_without_any_source_the_defaults_and_the_default_recipe_hold(tmp_path: Path) -> None:
    resolved = settle(tmp_path)
    recipe = flatten(load_recipe(DEFAULT), "recipe")
    assert resolved.recipe == DEFAULT
    for key, source in resolved.sources.items():
        assert source == (f"recipe {DEFAULT}" if key in recipe else DEFAULT_SOURCE)


def test_each_source_wins_over_those_before_it(tmp_path: Path) -> None:
    key, variable = "learner.learning_rate", "HINDCAST__LEARNER__LEARNING_RATE"
    toml = "[learner]\nlearning_rate = 3e-4\n"
    found = [
        settle(tmp_path, recipe="cloning"),
        settle(tmp_path, recipe="cloning", toml=toml),
        settle(tmp_path, recipe="cloning", toml=toml, **{variable: "4e-4"}),
        settle(tmp_path, f"{key}=5e-4", recipe="cloning", toml=toml, **{variable: "4e-4"}),
    ]
    assert [one.settings.learner.learning_rate for one in found] == [1e-4, 3e-4, 4e-4, 5e-4]
    file = str(tmp_path / "hindcast.toml")
    assert [one.sources[key] for one in found] == ["recipe cloning", file, "environment", "--set"]


def test_the_last_of_two_overrides_holds(tmp_path: Path) -> None:
    assert settle(tmp_path, "run.seed=2", "run.seed=3").settings.run.seed == 3


def test_the_recipe_comes_from_the_argument_the_environment_or_the_file(tmp_path: Path) -> None:
    toml = 'recipe = "cloning"\n'
    assert settle(tmp_path, toml=toml).recipe == "cloning"
    assert settle(tmp_path, toml=toml, HINDCAST__RECIPE="mgrpo").recipe == "mgrpo"
    assert settle(tmp_path, toml=toml, recipe="mgrpo").recipe == "mgrpo"


def test_a_given_file_is_read_instead_of_the_one_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "hindcast.toml").write_text("[run]\nseed = 5\n")
    (tmp_path / "other.toml").write_text("[run]\nseed = 6\n")
    assert resolve(file=tmp_path / "other.toml", environment={}, folder=tmp_path).settings.run.seed == 6


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("curriculum.environments=store", ("store",)),
        (
            "curriculum.families=store/find_price, miniwob/click-button",
            ("store/find_price", "miniwob/click-button"),
        ),
        ('curriculum.families=["store/find_price"]', ("store/find_price",)),
        ("curriculum.families=", ()),
        ("log.batch_events=3", 3),
        ("run.seed=-4", -4),
        ("policy.base=/models/a=b", "/models/a=b"),
        ("policy.base=1234", "1234"),
        ("learner.algorithm=cloning", "cloning"),
    ],
)
def test_text_becomes_a_value_of_the_right_kind(tmp_path: Path, text: str, value: object) -> None:
    section, name = text.partition("=")[0].split(".")
    assert getattr(getattr(settle(tmp_path, text).settings, section), name) == value


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            {"overrides": ("learner.learning_rat=1",)},
            r"--set: .*'learner\.learning_rat'; the nearest is learner\.learning_rate",
        ),
        ({"overrides": ("lerner.clip_low=1",)}, r"the nearest is learner\.options\.clip_low"),
        ({"overrides": ("max_staleness=1",)}, r"the nearest is learner\.max_staleness"),
        ({"overrides": ("learner=1",)}, "it is a section"),
        ({"overrides": ("xyzzy.qwerty=1",)}, "`hindcast config schema` lists all"),
        ({"overrides": ("nothing",)}, r"is not section\.key=value"),
        (
            {"toml": "[actors]\ncontxts = 2\n"},
            r"hindcast\.toml: .*'actors\.contxts'; the nearest is actors\.contexts",
        ),
        ({"toml": "[nosuch]\na = 2\n"}, "nosuch"),
        ({"toml": "actors = 2\n"}, "it is a section"),
        ({"toml": "[actors\n"}, r"hindcast\.toml is not TOML: .*line 1"),
        ({"toml": "recipe = 4\n"}, "recipe = 4 must be the name of a recipe"),
        (
            {"HINDCAST__ACTOR__CONTEXTS": "2"},
            r"environment variable HINDCAST__ACTOR__CONTEXTS: .*the nearest is actors",
        ),
        (
            {"recipe": "grop"},
            "there is no recipe 'grop'; the nearest is mgrpo; there are: " + ", ".join(recipe_names()),
        ),
    ],
)
def test_an_unknown_setting_names_its_source_and_the_nearest_one(
    tmp_path: Path, source: dict[str, object], words: str
) -> None:
    given_overrides = source.pop("overrides", ())
    with pytest.raises(SettingsError, match=words) as raised:
        settle(tmp_path, *given_overrides, **source)  # type: ignore[misc, arg-type]
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "learner.options.clip_low=2",
            r"--set: learner\.options\.clip_low = 2 is not allowed \(Lower clip of the ratio",
        ),
        (
            "learner.options.group_batch=many",
            r'learner\.options\.group_batch = "many" is not allowed .*allowed: integer ≥ 1',
        ),
        (
            "learner.algorithm=ppo",
            r"--set: learner\.algorithm: no installed package has a plugin 'ppo' of algorithms; the nearest is grpo; there are: awr, ",
        ),
        ("log.replicas=2", "must be 1, 3 or 5"),
        ("curriculum.lease_s=-1", "must be greater than or equal to 0"),
        (
            "curriculum.lease_s=10",
            r"actors\.episode_timeout_s = 150 must be shorter than curriculum\.lease_s = 10",
        ),
        ("curriculum.group_size=1", "it needs at least 2"),
        ("evolution.generator=embedded", r"with learner\.phase_episodes = 0 a run has one phase"),
        ("evolution.value_low=0.8", r"is above evolution\.value_high = 0\.75: no task would be admitted"),
        ("curriculum.families=find_price", r"'find_price': a family is written environment/name"),
        ("curriculum.families=webshop/buy", r"'webshop/buy'.*\(store, miniwob\)"),
    ],
)
def test_a_bad_value_names_key_value_and_what_is_allowed(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        settle(tmp_path, text)


def test_every_mistake_of_a_kind_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as raised:
        settle(tmp_path, "learner.options.clip_low=2", "log.replicas=2")
    assert len(str(raised.value).splitlines()) == 2


def test_a_settings_file_that_cannot_be_read_is_a_worded_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.toml cannot be read: No such file"):
        read_file(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match=r"bytes\.toml is not TOML"):
        read_file(tmp_path / "bytes.toml")


def test_thoughts_of_demonstrations_need_a_form_with_room_for_them(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"actors\.answer_format"):
        settle(tmp_path, "actors.demonstration_reasoning=true")
    settle(tmp_path, "actors.demonstration_reasoning=true", "actors.answer_format=thinking")


def test_every_setting_is_documented() -> None:
    assert [key for key, field in fields().items() if not field.description] == []


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_valid(tmp_path: Path, name: str) -> None:
    assert settle(tmp_path, recipe=name).recipe == name


def test_written_settings_read_back_the_same_with_their_sources_beside_them(tmp_path: Path) -> None:
    resolved = settle(
        tmp_path,
        'policy.base=C:\\a "b" #c\n\x7f €',
        "curriculum.families=store/find_price,miniwob/click-button",
        recipe="cloning",
    )
    path = tmp_path / "settings.toml"
    path.write_text(to_toml(resolved))
    layer, recipe = read_file(path)
    assert recipe == "cloning"
    assert merge([layer], recipe="cloning").settings == resolved.settings
    assert "  # --set" in path.read_text()


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)


@given(
    base=words,
    seed=st.integers(-(2**63), 2**63 - 1),
    rate=st.floats(1e-300, 1e300),
    families=st.lists(words, max_size=3),
)
def test_any_value_survives_being_written_down(
    base: str, seed: int, rate: float, families: list[str]
) -> None:
    settings = Settings.model_validate(
        {
            "policy": {"base": base},
            "run": {"seed": seed},
            "learner": {"learning_rate": rate},
            "curriculum": {"families": families},
        }
    )
    content = tomllib.loads(to_toml(Resolved(settings=settings, recipe="mgrpo", sources={})))
    content.pop("recipe")
    assert Settings.model_validate(content) == settings


def test_environments_chosen_by_hand_narrow_the_families_of_a_recipe() -> None:
    resolved = resolve(overrides=["curriculum.environments=store"], environment={}, folder=Path("/nowhere"))
    families = resolved.settings.curriculum.families
    assert families
    assert {family.split("/")[0] for family in families} == {"store"}
    with pytest.raises(SettingsError, match="miniwob/click-link"):
        resolve(
            overrides=["curriculum.environments=store", "curriculum.families=miniwob/click-link"],
            environment={},
            folder=Path("/nowhere"),
        )
