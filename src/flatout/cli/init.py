"""`flatout init`: a flatout.toml with every setting, its default and what it means.

The text is made from the settings' own models: a setting that is added there appears here. What is
not set by default stands in the file as a comment with an example, ready to be uncommented.
"""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from flatout.cli.options import Json, print_json
from flatout.errors import SettingsError
from flatout.runs import write_bytes
from flatout.settings.tables import Settings
from flatout.settings.train import AUTO
from flatout.terminal import say

WIDTH = 120  # of a line; a longer comment goes above its setting
TITLE = """\
# Settings of flatout. Every value is the default: leave a line or a whole table out, and nothing
# changes. (Of [search.space] leave out all or nothing: what stands there is searched, and nothing
# else.) `# name = value` is an example of what is not set. `flatout config show --origin -c FILE`
# prints what is in force.
"""

# What is not set by default needs a value in the file all the same. Without an example here it is
# "off".
EXAMPLES: dict[str, object] = {
    "data.bars": "bars.parquet",
    "data.symbols": ["BTCUSDT", "ETHUSDT"],
    "data.bar": "4h",
    "data.calendar": "XNYS",
    "market.episode_bars": 512,
    "market.limits.trailing_stop": 0.1,
    "market.limits.max_held_bars": 48,
    "features.indicators": ["rsi", "macd", "return_1", "1d:volatility"],
    "train.timesteps": 200_000,
    "train.n_envs": 64,
    "train.value_clip": 0.2,
    "train.target_kl": 0.02,
    "train.action_noise": 0.2,
    "folds.purge_bars": 4,
    "folds.embargo_bars": 240,
    "folds.hold_out": 0.2,
    "search.batch": 8,
    "search.registry": "~/.local/share/flatout/trials",
}


def init_command(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("flatout.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    as_json: Json = False,
) -> None:
    """Write a settings file with every default and what it means, and say what to do with it."""
    if path.is_dir():
        raise SettingsError(
            f"{path} is a folder: name the file to write, as in {path / 'flatout.toml'}"
        )
    if path.exists() and not force:
        raise SettingsError(f"{path} exists: give another name, or --force to replace it")
    if not path.parent.is_dir():
        raise SettingsError(f"{path} cannot be written: there is no folder {path.parent}")
    try:
        write_bytes(path, settings_text().encode())
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from None
    following = next_commands(path)
    if as_json:
        print_json({"file": str(path), "next": following})
        return
    say(f"{path} is written")
    for number, command in enumerate(following):
        say(f"{'      ' if number else 'next: '}{command}")


def next_commands(path: Path) -> list[str]:
    """What people do with a fresh settings file."""
    return [
        "flatout data check BARS",
        f"flatout search {path} --bars BARS --plan",
        f"flatout search {path} --bars BARS",
    ]


def settings_text(settings: Settings | None = None) -> str:
    """The text of a settings file with every default."""
    return TITLE + "\n".join(table_lines(settings or Settings(), "")) + "\n"


def explanation(kind: type) -> str:
    """A class's docstring in one line; from its source where Python has dropped it (-OO)."""
    text = kind.__doc__
    if text is None:
        (definition,) = ast.parse(inspect.getsource(kind)).body
        assert isinstance(definition, ast.ClassDef)
        text = ast.get_docstring(definition) or ""
    return " ".join(text.split())


def table_lines(model: BaseModel, prefix: str) -> Iterator[str]:
    """A model as a TOML table: its own settings first, then the tables inside it."""
    fields = {
        name: (field, written_value(model, name, field))
        for name, field in type(model).model_fields.items()
        if not field.exclude
    }
    own = {name: pair for name, pair in fields.items() if not is_table(pair[1])}
    if prefix and own:
        yield from heading(prefix, explanation(type(model)))
        yield from align_comments(
            [setting(f"{prefix}.{name}", *pair) for name, pair in own.items()]
        )
    for name, (field, value) in fields.items():
        below = f"{prefix}.{name}".removeprefix(".")
        if isinstance(value, BaseModel):
            yield from table_lines(value, below)
        elif isinstance(value, Mapping):
            lines = [f"{key(inner)} = {toml(knob)}" for inner, knob in value.items()]
            if name in model.model_fields_set:
                yield from (*heading(below, field.description or ""), *lines)
            else:  # it follows from other settings
                yield ""
                yield f"# [{below}]  # {field.description}; not given = the usual one, which is:"
                yield from (f"# {line}" for line in lines)


def written_value(model: BaseModel, name: str, field: FieldInfo) -> object:
    """A setting's value; None where the file leaves it to the algorithm, and "auto" where what it
    stands for was chosen.
    """
    value = getattr(model, name)
    if name in model.model_fields_set:
        return value
    if field.json_schema_extra:
        return None
    return AUTO if field.default == AUTO else value


def is_table(value: object) -> bool:
    """Whether a value has a table of its own."""
    return isinstance(value, BaseModel | Mapping)


def heading(name: str, meaning: str) -> Iterator[str]:
    """The line that opens a table."""
    yield ""
    line = f"[{name}]  # {meaning}" if meaning else f"[{name}]"
    if len(line) <= WIDTH:
        yield line
    else:
        yield from (f"# {part}" for part in textwrap.wrap(meaning, WIDTH - 2))
        yield f"[{name}]"


def setting(name: str, field: FieldInfo, value: object) -> tuple[str, str]:
    """A line without its comment, and the comment: what may be chosen, then what it means."""
    last = name.rpartition(".")[2]
    usual = field.default  # of another algorithm than the chosen one, or what is not given
    if value is None and usual is not None and not field.json_schema_extra:
        value = "off"
    example = EXAMPLES.get(name, "off" if usual is None else usual)
    line = f"{last} = {toml(value)}" if value is not None else f"# {last} = {toml(example)}"
    return line, "; ".join(filter(None, [" | ".join(choices(field.annotation)), field.description]))


def choices(annotation: object) -> list[str]:
    """The words that a setting takes, if it takes words only."""
    return [str(word) for word in get_args(annotation)] if get_origin(annotation) is Literal else []


def align_comments(lines: list[tuple[str, str]]) -> Iterator[str]:
    """Comments below each other; one that would make its line too long goes above it."""
    column = max((len(line) for line, comment in lines if comment and len(line) <= 40), default=0)
    for line, comment in lines:
        whole = f"{line:<{column}}  # {comment}" if comment else line
        if len(whole) > WIDTH:
            said = textwrap.wrap(f"{comment}:", WIDTH - 2, subsequent_indent="  ")
            yield from (f"# {part}" for part in said)
            yield line
        else:
            yield whole


def key(name: str) -> str:
    """A key; one with dots is quoted, as it would be a path otherwise."""
    return name if name.replace("_", "").isalnum() else json.dumps(name, ensure_ascii=False)


def toml(value: object) -> str:
    """A value as TOML; of a model only what is not its default, unless nothing would be left."""
    if isinstance(value, BaseModel):
        return toml(
            value.model_dump(mode="json", exclude_defaults=True) or value.model_dump(mode="json")
        )
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key(name)} = {toml(inner)}' for name, inner in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
