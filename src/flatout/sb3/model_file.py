"""A model on disk: one zip file with `model.json` and `tensors.safetensors`; no pickle is written,
and none is read.

Members are stored as they are, never compressed: a small file cannot become a large one. What the
numbers mean is `saving.py`'s business.
"""

import hashlib
import io
import json
import os
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple

from numpy.typing import NDArray
from pydantic import Field

from flatout.errors import BundleError
from flatout.foreign import Sha256, parse_json, parse_tensors, read_file
from flatout.runs import pack_arrays, write_bytes
from flatout.settings.fields import Model, NotNegative, Number, Share
from flatout.settings.train import Activation

FORMAT = "flatout.ppo"
VERSION = 1
FACTS, TENSORS = "model.json", "tensors.safetensors"
MODEL_BYTES = 256 << 20
FACTS_BYTES = 8 << 20
DIRECTORY_BYTES = 4096  # a zip's list of members: there are two
END = struct.Struct(
    "<4s4H2LH"
)  # what a zip ends with; `size` of the list of members is its sixth field
END64 = b"PK\x06\x07"  # before it, where sizes have 64 bits
CURE = "give a file that `save` of flatout.PPO wrote, or an undamaged copy"
Arrays = dict[str, NDArray[Any]]  # by name; their types stand in the file
FilePath = str | os.PathLike[str]
PathOrFile = FilePath | BinaryIO
Several = Annotated[int, Field(strict=True, ge=1, le=2**31)]
Natural = Annotated[int, Field(strict=True, ge=0)]
Steps = Annotated[Natural, Field(lt=2**53)]


class BoxFacts(Model):
    """A box; its bounds are arrays, which stand among the tensors."""

    kind: Literal["Box"]
    dtype: Literal[
        "float16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
    ]


class DiscreteFacts(Model):
    """A space of n choices, counted from 0."""

    kind: Literal["Discrete"]
    n: Several


class MultiBinaryFacts(Model):
    """A space of arrays of zeros and ones."""

    kind: Literal["MultiBinary"]
    n: list[Several]


# as deep as the array has axes; what else stands there is refused by `flat_spaces.choices_of`
ChoiceCounts = list[Any]


class MultiDiscreteFacts(Model):
    """A space of arrays of choices."""

    kind: Literal["MultiDiscrete"]
    nvec: ChoiceCounts


SpaceFacts = Annotated[
    BoxFacts | DiscreteFacts | MultiBinaryFacts | MultiDiscreteFacts, Field(discriminator="kind")
]  # fmt: skip


class ArgumentFacts(Model):
    """The constructor's arguments; schedules that are functions are not among them."""

    n_steps: Several
    batch_size: Several
    n_epochs: Several
    gamma: Share
    gae_lambda: Share
    normalize_advantage: bool | int
    ent_coef: Number
    vf_coef: Number
    max_grad_norm: NotNegative
    target_kl: NotNegative | None
    tensorboard_log: str | None
    verbose: bool | int
    seed: Natural | None
    learning_rate: NotNegative | None = None
    clip_range: NotNegative | None = None
    clip_range_vf: NotNegative | None = None
    stats_window_size: Several


class NetworkFacts(Model):
    """What `policy_kwargs` asked for."""

    hidden: Annotated[tuple[Several, ...], Field(min_length=1)]
    activation: Activation
    log_std: Number


class ModelFacts(Model):
    """The content of `model.json`; keys are those on disk."""

    format: Literal["flatout.ppo"]
    version: Literal[1]
    arguments: ArgumentFacts
    functions: list[Literal["learning_rate", "clip_range", "clip_range_vf"]]
    policy: NetworkFacts
    observation_space: SpaceFacts
    action_space: SpaceFacts
    n_envs: Several
    num_timesteps: Steps
    n_updates: Steps
    versions: dict[str, str | None]
    descents: Steps
    updates: Steps
    learner_seed: Annotated[Natural, Field(lt=2**32)]
    tensors_sha256: Sha256


class ModelFile(NamedTuple):
    """A model's file as it was read, checked but for its arrays."""

    name: str
    facts: ModelFacts
    arrays: Arrays


def write_model(path: PathOrFile, facts: Mapping[str, object], arrays: Arrays) -> None:
    """Write a model whole or not at all; `path` gets the ending .zip if it has none, or is an open
    file.
    """
    tensors = pack_arrays(arrays)
    about = {
        "format": FORMAT,
        "version": VERSION,
        **facts,
        "tensors_sha256": hashlib.sha256(tensors).hexdigest(),
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo(FACTS), json.dumps(about, indent=2, allow_nan=False))
        archive.writestr(zipfile.ZipInfo(TENSORS), tensors)
    content = file.getvalue()
    if len(content) > MODEL_BYTES:
        raise BundleError(
            f"the model has {len(content):,} bytes; {MODEL_BYTES:,} are allowed: take smaller "
            f"layers"
        )
    if hasattr(path, "write"):
        path.write(content)
        return
    target = with_ending(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(target, content)
    except OSError as error:
        raise BundleError(
            f"cannot save a model as {target}: {error.strerror}; give a path to write to"
        ) from error


def with_ending(path: FilePath) -> Path:
    """The path, with .zip where it has no ending."""
    path = Path(path)
    return path if path.suffix or not path.name else path.with_suffix(".zip")


def read_model(path: PathOrFile) -> ModelFile:
    """What `write_model` wrote; refuses what is missing, damaged or something else."""
    name, content = content_of(path)
    inside = members_of(name, content)
    facts = parse_json(
        inside[FACTS], ModelFacts, where=f"{name}: {FACTS}", refuse=BundleError, cure=CURE
    )
    if hashlib.sha256(inside[TENSORS]).hexdigest() != facts.tensors_sha256:
        raise BundleError(f"{name} is damaged: its tensors are not those that were saved; {CURE}")
    return ModelFile(
        name, facts, parse_tensors(inside[TENSORS], f"{name}: {TENSORS}", BundleError, CURE).arrays
    )


def content_of(path: PathOrFile) -> tuple[str, bytes]:
    """The bytes of a file, and what to call it."""
    if hasattr(path, "read"):
        name, content = str(getattr(path, "name", "the file")), path.read(MODEL_BYTES + 1)
        if not isinstance(content, bytes) or len(content) > MODEL_BYTES:
            raise BundleError(
                f"{name} is no file of at most {MODEL_BYTES:,} bytes, opened as 'rb'; {CURE}"
            )
        return name, content
    found = Path(path) if os.path.lexists(path) else with_ending(path)  # `Path.exists` may raise
    return str(found), read_file(found, MODEL_BYTES, BundleError, CURE)


def members_of(name: str, content: bytes) -> dict[str, bytes]:
    """The two files in a zip, each there once and stored as it is."""
    check_directory(name, content)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            listed = archive.infolist()
            check_members(name, listed)
            return {member.filename: archive.read(member) for member in listed}
    # What zipfile raises beside BadZipFile is not documented: it depends on which field is damaged.
    except (
        zipfile.BadZipFile,
        EOFError,
        OSError,
        ValueError,
        NotImplementedError,
        RuntimeError,
        struct.error,
    ) as error:
        if isinstance(error, BundleError):
            raise
        raise BundleError(f"{name} is not a model, or was cut off: {error}; {CURE}") from None


def check_directory(name: str, content: bytes) -> None:
    """Refuse a zip whose list of members is long, before zipfile makes an object of each."""
    place = content.rfind(b"PK\5\6", max(0, len(content) - END.size - (1 << 16)))
    if place < 0 or len(content) < place + END.size:
        raise BundleError(
            f"{name} is not a model, or was cut off: it does not end as a zip file does; {CURE}"
        )
    if END.unpack_from(content, place)[5] > DIRECTORY_BYTES or content[
        max(0, place - 20) :
    ].startswith(END64):
        raise BundleError(f"{name} holds more than a model does; {CURE}")


def check_members(name: str, listed: list[zipfile.ZipInfo]) -> None:
    """Refuse all but the two files of a model."""
    names = sorted(member.filename for member in listed)
    if "policy.pth" in names:
        raise BundleError(
            f"{name} was saved by Stable-Baselines3; it holds pickles, and flatout reads none: "
            "load it there and hand its weights over with `model.set_parameters({'policy': "
            "theirs.policy.state_dict()})`"
        )
    if names != [FACTS, TENSORS]:
        raise BundleError(
            f"{name} is not a model that flatout.PPO saved: it does not hold {FACTS} and "
            f"{TENSORS}; {CURE}"
        )
    for member in listed:
        if member.flag_bits & 1 or member.compress_type != zipfile.ZIP_STORED:
            raise BundleError(f"{name}: {member.filename} is encrypted or compressed; {CURE}")
        limit = FACTS_BYTES if member.filename == FACTS else MODEL_BYTES
        if member.file_size > limit:
            raise BundleError(
                f"{name}: {member.filename} has {member.file_size:,} bytes, and {limit:,} are "
                f"read; {CURE}"
            )
