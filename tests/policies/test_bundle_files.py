"""Policies on disk: they come back bit for bit, survive a kill at any moment, and touch nothing
that is not theirs.
"""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import safetensors.numpy
from saved_policies import NEW, OLD, OTHER_RECIPE, PANEL, content, observations, saved

from flatout.errors import BundleError
from flatout.policies.bundle import Bundle
from flatout.settings.tables import ActionKind, MarketSettings
from small_bundles import bundle_of, network_of


@pytest.mark.parametrize(
    "bundle",
    [
        OLD,
        bundle_of(PANEL, 3, action="trade", distribution="squashed_gaussian", activation="silu"),
        bundle_of(PANEL, 4, action="direction_amount", activation="relu"),
        bundle_of(PANEL, 5, action="discrete", order_sizes=[0.3, 0.1]),
        *(bundle_of(PANEL, 6, action=kind, kind="per_asset") for kind in get_args(ActionKind)),
        bundle_of(PANEL, network=network_of(31, 4, hidden=(8, 8)), gates=np.array([1.0, 0.0])),
        bundle_of(PANEL, settings=MarketSettings(), notes={}),
        bundle_of(
            PANEL,
            limits={"lot_step": {"S00": 0.5}},
            notes={"figures": {"sharpe": 1 / 3, "sortino": None}},
        ),
    ],
)
def test_a_saved_policy_comes_back_bit_for_bit(bundle: Bundle, tmp_path: Path) -> None:
    bundle.save(tmp_path / "runs" / "best")
    loaded = Bundle.load(str(tmp_path / "runs" / "best"))
    assert content(loaded) == content(bundle)
    seen = observations(bundle, 50)
    assert loaded.act(seen).tobytes() == bundle.act(seen).tobytes()


def test_the_files_are_json_safetensors_and_the_recipes_own(tmp_path: Path) -> None:
    OLD.save(tmp_path)
    facts = json.loads((tmp_path / "policy.json").read_text())
    tensors, recipe = facts["tensors_sha256"][:12], facts["recipe_sha256"][:12]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"policy-{tensors}.safetensors", "policy.json", f"recipe-{recipe}",
    ]  # fmt: skip
    stored = safetensors.numpy.load_file(tmp_path / f"policy-{tensors}.safetensors")
    assert {"actor.hidden.0.weight", "actor.head.bias", "critic.hidden.1.bias", "log_std"} < set(
        stored
    )
    assert (facts["hidden"], facts["observation_size"], facts["action_size"]) == ([16, 8], 31, 4)
    assert facts["market"]["limits"]["trailing_stop"] == 0.03


def test_a_new_policy_takes_the_old_ones_place_and_leaves_strangers_alone(tmp_path: Path) -> None:
    OLD.save(tmp_path)
    (tmp_path / "recipe-of-my-grandmother").mkdir()
    (tmp_path / "policy-notes.safetensors").touch()
    bundle_of(PANEL, 2, recipe=OTHER_RECIPE).save(tmp_path)
    assert Bundle.load(tmp_path).notes == {"seed": 2}
    assert len(list(tmp_path.iterdir())) == 5
    assert (tmp_path / "recipe-of-my-grandmother").is_dir()


def test_saving_twice_writes_the_same_bytes(tmp_path: Path) -> None:
    for _ in range(2):
        OLD.save(tmp_path / "a")
        NEW.save(tmp_path / "b")
        OLD.save(tmp_path / "b")
    found = [
        {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        for folder in (tmp_path / "a", tmp_path / "b")
    ]
    assert found[0] == found[1]


class KilledError(BaseException):
    """Nothing catches it, as nothing catches a kill."""


OPERATIONS = (
    "mkdir",
    "open",
    "fsync",
    "replace",
    "unlink",
    "rmdir",
)  # all by which a save changes the disk


def save_and_die(bundle: Bundle, folder: Path, before: int, patch: pytest.MonkeyPatch) -> int:
    """Save, killed before the operation of this number; from then on the process does nothing more.
    Returns how many operations were done.
    """
    done = 0

    def counted(real: Callable[..., Any], *args: Any, **options: Any) -> Any:
        nonlocal done
        if done >= before:
            raise KilledError
        done += 1
        return real(*args, **options)

    with patch.context() as patched:
        for name in OPERATIONS:
            patched.setattr(os, name, partial(counted, getattr(os, name)))
        with suppress(KilledError):
            bundle.save(folder)
    return done


@pytest.mark.parametrize(
    "new", [NEW, bundle_of(PANEL, 2, recipe=OTHER_RECIPE)], ids=["same recipe", "other recipe"]
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_killed_at_any_moment_the_folder_holds_the_old_policy_or_the_new_one(
    new: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, wanted = content(OLD), content(new)
    found = []
    for before in range(100):
        folder = tmp_path / str(before)
        OLD.save(folder)
        done = save_and_die(new, folder, before, monkeypatch)
        found.append(content(Bundle.load(folder)))
        assert found[-1] in (old, wanted)
        new.save(folder)  # and the next save finds its way
        assert content(Bundle.load(folder)) == wanted
        assert len(list(folder.glob("[!.]*"))) == 3
        if done < before:
            break
    else:
        pytest.fail("a save never came to its end")
    assert len(found) > 10
    assert found == sorted(found, key=lambda one: one == wanted)  # once new, it stays new
    assert found[0] == old
    assert found[-1] == wanted


def test_killed_in_an_empty_folder_there_is_no_policy_or_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for before in (0, 3, 6, 9):
        save_and_die(NEW, tmp_path / str(before), before, monkeypatch)
        with pytest.raises(BundleError, match=r"policy\.json: there is no such file"):
            Bundle.load(tmp_path / str(before))


def test_a_full_disk_is_told_and_leaves_the_old_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    OLD.save(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        BundleError, match=r"cannot save a policy in .*: No space left on device; give a folder"
    ):
        NEW.save(tmp_path)
    assert content(Bundle.load(tmp_path)) == content(OLD)


def test_a_file_is_no_folder_to_save_in(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(BundleError, match=r"cannot save a policy in .*taken"):
        OLD.save(tmp_path / "taken")


def test_what_others_keep_beside_a_policy_stays(tmp_path: Path) -> None:
    """Also in the folder of an old recipe, and behind links with names that a save makes."""
    _, _, recipe = saved(tmp_path / "policy")
    (recipe / "mine.txt").write_text("mine")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "recipe.json").write_text("mine")
    (tmp_path / "policy" / "recipe-0123456789ab").symlink_to(outside)
    (tmp_path / "policy" / "policy-0123456789ab.safetensors").symlink_to(outside / "recipe.json")
    (tmp_path / "policy" / "policy-ab0123456789.safetensors").mkdir()
    bundle_of(PANEL, 2, recipe=OTHER_RECIPE).save(tmp_path / "policy")
    assert [path.name for path in recipe.iterdir()] == ["mine.txt"]
    assert [path.read_text() for path in outside.iterdir()] == ["mine"]
    assert (tmp_path / "policy" / "recipe-0123456789ab").is_symlink()
    assert Bundle.load(tmp_path / "policy").notes == {"seed": 2}


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    _, _, recipe = saved(tmp_path / "policy")
    outside = tmp_path / "outside"
    recipe.rename(outside)
    before = {path.name: path.stat().st_mtime_ns for path in outside.iterdir()}
    recipe.symlink_to(outside)
    with pytest.raises(
        BundleError,
        match=r"recipe-.* is a symbolic link, through which nothing is written: remove it",
    ):
        OLD.save(tmp_path / "policy")
    assert {path.name: path.stat().st_mtime_ns for path in outside.iterdir()} == before
