"""`core.fast_import`: nothing is collected within, and it is left as it was found."""

import gc

import pytest

from hindcast.core.fast_import import loading


def test_nothing_is_collected_within_and_again_afterwards() -> None:
    frozen = gc.get_freeze_count()
    try:
        with loading():
            assert not gc.isenabled()
            with loading():
                assert not gc.isenabled()
            assert not gc.isenabled(), "the outer one goes on"
        assert gc.isenabled()
        assert gc.get_freeze_count() > frozen, "what is there is spared from now on"
    finally:
        gc.unfreeze()


def test_what_cannot_be_loaded_leaves_it_as_it_was() -> None:
    with pytest.raises(ModuleNotFoundError), loading():
        import there_is_no_such_module  # type: ignore[import-not-found]  # noqa: F401
    assert gc.isenabled()


def test_who_collects_nothing_goes_on_so() -> None:
    gc.disable()
    try:
        with loading():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
