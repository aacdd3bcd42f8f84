"""`flatout init`: the written file is the defaults, complete, explained, and every example in it
works.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from flatout.bars.resample import resample
from flatout.bars.synthetic import built_in_market
from flatout.cli.config import flatten
from flatout.cli.init import EXAMPLES, WIDTH, settings_text
from flatout.cli.main import main
from flatout.errors import SettingsError
from flatout.folds.splits import make_folds
from flatout.market.market import recipe_of
from flatout.settings.loading import load_settings
from flatout.settings.tables import Settings
from flatout.settings.train import PPO_ONLY

EXAMPLE = re.compile(r"^# (\w+) = ")
KNOB = re.compile(r'^# "(\S+)" = \{', re.MULTILINE)  # of the usual space


def init(*words: str) -> Result:
    return CliRunner().invoke(main, ["init", *words], env={"COLUMNS": "200"})


def load(path: Path, *overrides: str) -> Settings:
    return load_settings(path, overrides=overrides, environment={}).settings


def examples(text: str) -> dict[str, str]:
    """Dotted names of the lines that are commented out, with the lines."""
    table, found = "", {}
    for line in text.splitlines():
        if line.startswith("["):
            table = line[1:].partition("]")[0]
        elif match := EXAMPLE.match(line):
            found[f"{table}.{match[1]}"] = line
    return found


def set_in(settings: Settings) -> dict[str, object]:
    return flatten(settings.model_dump(mode="json"))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "flatout.toml"
    assert init(str(path)).exit_code == 0
    return path


def test_the_written_file_is_the_default_settings(written: Path) -> None:
    assert load(written) == Settings()


def test_every_setting_is_in_it(written: Path) -> None:
    here = {*load_settings(written, environment={}).origin, *examples(written.read_text())}
    missing = [key for key in set_in(Settings()) if key not in here]
    assert [key for key in missing if not key.startswith("search.space.")] == []
    knobs = set(KNOB.findall(written.read_text()))
    assert knobs == set(Settings().search.space)


@pytest.mark.parametrize("name", examples(settings_text()))
def test_each_example_works_when_its_comment_is_taken_away(written: Path, name: str) -> None:
    line = examples(written.read_text())[name]
    written.write_text(written.read_text().replace(line, line.removeprefix("# ")))
    settings = load(written)
    if name.removeprefix("train.") in PPO_ONLY:  # with it, "auto" is ppo
        assert settings == load(written, "train.algorithm=ppo")
    else:
        changed, default = set_in(settings), set_in(Settings())
        assert {key for key in changed if changed[key] != default[key]} == {name}


def test_all_examples_work_together(written: Path) -> None:
    """But for the numbers of ppo, as the market's actions have a gradient."""
    lines = written.read_text().splitlines()
    of_ppo = [line for line in lines if (found := EXAMPLE.match(line)) and found[1] in PPO_ONLY]
    text = "\n".join(EXAMPLE.sub(r"\1 = ", line) for line in lines if line not in of_ppo)
    written.write_text(text)
    settings = load(written)
    assert settings.data.symbols == ("BTCUSDT", "ETHUSDT")
    assert recipe_of(settings.features).indicators == tuple(EXAMPLES["features.indicators"])
    warmup = recipe_of(settings.features).count_warmup(resample(built_in_market(), "4h"))
    assert make_folds(settings.folds, 5000, 200, 1, 1, warmup).embargo == 240


def test_examples_belong_to_settings_that_are_not_set() -> None:
    assert set(EXAMPLES) <= set(examples(settings_text()))


def test_a_changed_line_changes_the_setting(written: Path) -> None:
    text = written.read_text().replace("groups = 4 ", "groups = 6 ")
    text = text.replace("# [search.space]", "[search.space]").replace('# "train.', '"train.')
    written.write_text(text.replace("low = 0.002", "low = 0.0001"))
    settings = load(written)
    assert settings.folds.groups == 6
    assert settings.search.space["train.learning_rate"].low == 1e-4


def test_settings_are_explained(written: Path) -> None:
    lines = written.read_text().splitlines()
    (action,) = [line for line in lines if line.startswith("action =")]
    assert action.endswith("# trade | weights | direction_amount | discrete")
    (gamma,) = [line for line in lines if line.startswith("gamma")]
    assert re.fullmatch(r"gamma = 0.99 +# discount per bar", gamma)
    assert "[folds]  # Which bars teach and which judge." in lines
    assert max(map(len, lines)) <= WIDTH


def test_other_values_are_written_too(tmp_path: Path) -> None:
    """The text comes from the models, whatever they hold."""
    given = load_settings(
        overrides=[
            "market.limits.lot_step={BTC = 0.1, 'A/B' = "
            "2.0}", "market.limits.trailing_stop=0.2", "gates.pbo=off",
            'data.bars="a \\"quoted\\" näme 📈"', "train.hidden=[32, 16]",
            ('search.space={"train.hidden"={choices=[[8], [16, 16]]}, "train.epochs"={low=1, '
            'high=4, whole=true}}'),
        ],
        environment={},
    ).settings  # fmt: skip
    path = tmp_path / "other.toml"
    path.write_text(settings_text(given))
    assert load(path) == given


def test_what_comes_next_is_said(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    assert init(str(path)).output.splitlines() == [
        f"{path} is written",
        "next: flatout data check BARS",
        f"      flatout search {path} --bars BARS --plan",
        f"      flatout search {path} --bars BARS",
    ]


def test_the_file_is_called_flatout_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = json.loads(init("--json").output)
    assert said["file"] == "flatout.toml"
    assert said["next"][1] == "flatout search flatout.toml --bars BARS --plan"
    assert load(tmp_path / "flatout.toml") == Settings()


def test_a_file_that_exists_is_kept_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "flatout.toml"
    path.write_text("[market]\ncapital = 5.0\n")
    error = init(str(path)).exception
    assert isinstance(error, SettingsError)
    assert str(error) == f"{path} exists: give another name, or --force to replace it"
    assert load(path).market.capital == 5
    assert init(str(path), "--force").exit_code == 0
    assert load(path) == Settings()


def test_places_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    error = init(str(tmp_path)).exception
    assert isinstance(error, SettingsError) and "is a folder" in str(error)
    error = init(str(tmp_path / "nowhere" / "flatout.toml")).exception
    assert isinstance(error, SettingsError) and "there is no folder" in str(error)


def test_comments_survive_an_interpreter_that_drops_docstrings(
    tmp_path: Path, written: Path
) -> None:
    script = "import flatout_command; flatout_command.run()"
    line = [sys.executable, "-OO", "-P", "-c", script, "init", str(tmp_path / "small.toml")]
    subprocess.run(line, check=True, capture_output=True)
    assert (tmp_path / "small.toml").read_text() == written.read_text()
