"""Damaged files of flatout.PPO: loaded, asked for actions, saved again."""

import hashlib
import io
import json
import random
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from damage.mutations import damage_bytes, damage_json, damage_tensors, replace_file
from damage.one_case import SilentlyWrong
from flatout.sb3.model_file import FACTS, TENSORS
from flatout.sb3.ppo import PPO

COUNT = 300
KIND = "kind"  # a file beside the model: which it was, and whether its hashes were made to fit
SPACES = {
    "boxes": (spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-2, 2, (2,), np.float32)),
    "choices": (spaces.MultiDiscrete([2, 3]), spaces.Discrete(4)),
    "several": (spaces.Discrete(3), spaces.MultiDiscrete([3, 3])),
    "bits": (spaces.MultiBinary(5), spaces.Discrete(2)),
}


class Still(gymnasium.Env[Any, Any]):
    """An environment for its spaces."""

    def __init__(self, name: str) -> None:
        self.observation_space, self.action_space = SPACES[name]


@cache
def answers(name: str) -> bytes:
    """What the honest model does."""
    return answer(model_of(name))


def model_of(name: str) -> PPO:
    return PPO(
        "MlpPolicy",
        Still(name),
        n_steps=8,
        batch_size=8,
        seed=1,
        policy_kwargs={"net_arch": [8, 8]},
    )


def answer(model: PPO) -> bytes:
    """What a model does in its own observation space, with and without noise."""
    model.observation_space.seed(0)
    seen = np.stack([model.observation_space.sample() for _ in range(5)])
    model.predict(seen)
    return (
        model.predict(seen, deterministic=True)[0].tobytes()
        + model.policy.predict_values(seen).tobytes()
    )


def prepare(folder: Path) -> None:
    for name in SPACES:
        model_of(name).save(folder / f"{name}.zip")


def damage(number: int, originals: Path, folder: Path) -> str:
    rng = random.Random(number)
    name = rng.choice(sorted(SPACES))
    path = folder / "model.zip"
    content = (originals / f"{name}.zip").read_bytes()
    kind = rng.choice(("bytes", "facts", "facts", "tensors", "tensors", "zip", "file"))
    (folder / KIND).write_text(f"{name} {'signed' if kind in ('facts', 'tensors') else 'damaged'}")
    if kind == "bytes":
        content, said = damage_bytes(content, rng)
    elif kind == "zip":
        content, said = damage_archive(content, rng)
    elif kind == "file":
        path.write_bytes(content)
        return f"{name}: {replace_file(path, rng, folder)}"
    else:
        content, said = damage_and_sign(content, kind, rng)
    path.write_bytes(content)
    return f"{name}: {kind}: {said}"


def members_of(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zip_of(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members:
            information = zipfile.ZipInfo(name)
            information.compress_type = method
            archive.writestr(information, data)
    return file.getvalue()


def damage_and_sign(content: bytes, kind: str, rng: random.Random) -> tuple[bytes, str]:
    """Other facts or tensors, whose hash fits."""
    members = members_of(content)
    if kind == "facts":
        members[FACTS], said = damage_json(members[FACTS], rng)
    else:
        members[TENSORS], said = damage_tensors(members[TENSORS], rng)
        facts = json.loads(members[FACTS]) | {
            "tensors_sha256": hashlib.sha256(members[TENSORS]).hexdigest()
        }
        members[FACTS] = json.dumps(facts).encode()
    return zip_of(list(members.items())), said


def damage_archive(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Members that are gone, there twice, called otherwise, compressed, encrypted, very many or
    very large.
    """
    members = list(members_of(content).items())
    kind = rng.choice(
        ("drop", "twice", "rename", "compressed", "encrypted", "many", "bomb", "more", "sizes")
    )
    if kind == "drop":
        members.pop(rng.randrange(2))
    elif kind == "twice":
        members.append(rng.choice(members))
    elif kind == "rename":
        members[rng.randrange(2)] = (
            rng.choice(("../../up", "/abs", "policy.pth", "x" * 300)),
            b"x",
        )
    elif kind == "many":
        members += [(f"{k}", b"") for k in range(30_000)]
    elif kind == "bomb":
        members[rng.randrange(2)] = (rng.choice((FACTS, TENSORS)), bytes(200 << 20))
    elif kind == "more":
        members.append(("notes.txt", b"hello"))
    method = zipfile.ZIP_DEFLATED if kind in ("bomb", "compressed") else zipfile.ZIP_STORED
    made = bytearray(zip_of(members, method))
    for signature, flags, size in ((b"PK\1\2", 8, 24), (b"PK\3\4", 6, 22)):
        place = made.find(signature)
        if kind == "encrypted":
            made[place + flags] |= 1
        elif kind == "sizes":
            made[place + size : place + size + 4] = rng.choice((0, 2**31, 2**32 - 1)).to_bytes(
                4, "little"
            )
    return bytes(made), kind


def attempt(folder: Path) -> str:
    name, signed = (folder / KIND).read_text().split()
    model = PPO.load(folder / "model.zip")
    found = answer(model)
    if signed != "signed" and found != answers(name):
        raise SilentlyWrong("it answers otherwise than the honest model, and nothing is said")
    if model.architecture.hidden != (8, 8):
        raise SilentlyWrong(f"its layers are {model.architecture.hidden} wide")
    file = io.BytesIO()
    model.save(file)
    file.seek(0)
    if answer(PPO.load(file)) != found:
        raise SilentlyWrong("saved again, it answers otherwise")
    return "read"
