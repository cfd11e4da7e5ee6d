"""`hindcast bench why`: when a pull is confirmed, and the forms that it is measured on."""

import importlib.util

import pytest

from bench.leave_out import LeftOut
from hindcast.app.evaluation.effect import FamilyEffect
from processes.system import ROOT


def left_out(pull: float, difference: float, *, low: float, high: float) -> LeftOut:
    effect = FamilyEffect(
        parent=0.5, derived=0.5 + difference, difference=difference, low=low, high=high, tasks=200
    )
    return LeftOut(family="f", episodes=9, pull=pull, effect=effect)


def test_a_pull_is_confirmed_where_leaving_out_does_the_contrary() -> None:
    assert left_out(0.02, -0.05, low=-0.09, high=-0.01).agrees
    assert left_out(-0.02, 0.05, low=0.01, high=0.09).agrees
    assert not left_out(0.02, 0.05, low=0.01, high=0.09).agrees
    assert not left_out(0.02, 0.0, low=-0.04, high=0.04).agrees


def test_an_effect_whose_interval_holds_0_is_not_sure() -> None:
    assert left_out(0.02, -0.05, low=-0.09, high=-0.01).is_sure
    assert not left_out(0.02, -0.05, low=-0.11, high=0.01).is_sure


@pytest.mark.parametrize("family", ["colors", "animals", "tools", "not_colors", "not_animals"])
def test_a_form_succeeds_by_what_its_pages_ask(family: str) -> None:
    spec = importlib.util.spec_from_file_location("forms", ROOT / "docs/examples/python/forms.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    form = module.Forms()
    assert family in form.families
    for errs_at in (None, 1):
        page, reward, over = form.reset(4, family), 0.0, False
        while not over:
            named = page.split('"')[1]
            other = next(one for one in form.choices if one != named)
            asked, wrong = (other, named) if page[3:].startswith("Do not") else (named, other)
            page, reward, over = form.step(wrong if form.page == errs_at else asked)
        assert reward == float(errs_at is None)
