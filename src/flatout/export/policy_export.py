"""`export`: a saved policy as a file that other people's programs read; written whole or not at
all.

The packages that a file format needs are optional and loaded only when it is asked for.
"""

import difflib
import hashlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from flatout.errors import BundleError
from flatout.policies.bundle import Bundle
from flatout.runs import installed_version, write_bytes


class ExportedFile(NamedTuple):
    """The content of a file, what is in it, and what whoever opens it should know."""

    content: bytes
    facts: dict[str, Any]  # plain JSON values
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class Target:
    """A file format that a policy can be written in."""

    meaning: str
    suffix: str
    packages: tuple[str, ...]  # as they are imported
    extra: str  # the extra of flatout that installs them
    make: Callable[[Bundle], ExportedFile]


def make_sb3(bundle: Bundle) -> ExportedFile:
    """For `stable_baselines3.PPO.load`."""
    from flatout.export.sb3_zip import zip_of  # loads PyTorch

    facts = {
        "observation_size": bundle.observation_size,
        "action_size": bundle.action_size,
        "activation": bundle.activation,
        "stable_baselines3": installed_version("stable-baselines3"),
    }
    return ExportedFile(
        zip_of(bundle),
        facts,
        (
            "it reads flatout's scaled observations: MarketEnv(bundle.market(panel)) makes them",
            (
                "rates and batch sizes are Stable-Baselines3's defaults: give PPO.load others to "
                "train on with them"
            ),
        ),
    )


def make_onnx(bundle: Bundle) -> ExportedFile:
    """The policy as an .onnx file, for any ONNX runtime."""
    from flatout.export.onnx_model import account_names, onnx_of, properties

    shape = bundle.shape
    facts = {
        "inputs": {
            "indicators": ["batch", shape.lookback, shape.n_assets, shape.n_features],
            "account": ["batch", len(account_names(bundle))],
        },
        "outputs": {
            "action": ["batch", bundle.action_size],
            "observation": ["batch", bundle.observation_size],
        },
        "properties": properties(bundle),
    }
    return ExportedFile(
        onnx_of(bundle),
        facts,
        (
            "indicators (batch, lookback, asset, feature) are unscaled float64, newest bar "
            "first, NaN where there is no value; account is float32",
            "names and order of all of them are in the model's metadata",
        ),
    )


def make_joblib(bundle: Bundle) -> ExportedFile:
    """The scaler as a .joblib file, for programs that use scikit-learn."""
    from flatout.export.sklearn_scaler import columns_of, joblib_of

    facts = {
        "scaler": bundle.recipe.recipe.scaler,
        "columns": columns_of(bundle.recipe),
        "scikit_learn": installed_version("scikit-learn"),
    }
    return ExportedFile(
        joblib_of(bundle.recipe),
        facts,
        (
            "give it float64; NaN stays NaN, where flatout shows the policy 0",
            (
                f"it is a pickle of scikit-learn {installed_version('scikit-learn')}: other "
                f"versions may not read it"
            ),
        ),
    )


TARGETS = {
    "sb3": Target(
        meaning="policy for Stable-Baselines3's PPO",
        suffix=".zip",
        packages=("torch", "stable_baselines3"),
        extra="sb3",
        make=make_sb3,
    ),
    "onnx": Target(
        meaning="policy with its scaling as ONNX",
        suffix=".onnx",
        packages=("onnx",),
        extra="export",
        make=make_onnx,
    ),
    "joblib": Target(
        meaning="scaler for scikit-learn",
        suffix=".joblib",
        packages=("sklearn", "joblib"),
        extra="export",
        make=make_joblib,
    ),
}


def find_target(name: str) -> Target:
    """The format of that name; an unknown one is refused with the known ones."""
    if name not in TARGETS:
        near = difflib.get_close_matches(name, TARGETS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise BundleError(
            f"there is no export to {name!r}: choose one of {', '.join(TARGETS)}{hint}"
        )
    return TARGETS[name]


def export_policy(folder: Path | str, to: str, out: Path | str | None = None) -> dict[str, Any]:
    """Write the policy saved in a folder as a file that other programs read.

    to   "onnx" (the policy with its scaling), "sb3" (a zip that Stable-Baselines3's PPO loads) or
         "joblib" (its scaler, for scikit-learn)
    out  the file to write, with the ending of its kind; by default here, named after the folder

    Returns what was written, as plain JSON values: file, kind, meaning, size, sha256 and remarks.
    """
    folder, out = Path(folder), None if out is None else Path(out)
    target = find_target(to)
    path = out or Path(f"{folder.resolve().name}{target.suffix}")
    if path.suffix != target.suffix:
        raise BundleError(
            f"{path}: an export to {to} is a {target.suffix} file; give it such a name"
        )
    check_installed(to, target)
    made = target.make(Bundle.load(folder))
    write(path, made.content)
    return {
        "file": str(path),
        "to": to,
        "meaning": target.meaning,
        "bytes": len(made.content),
        "sha256": hashlib.sha256(made.content).hexdigest(),
        **made.facts,
        "remarks": list(made.remarks),
    }


def check_installed(to: str, target: Target) -> None:
    """Refuse a format whose packages are not there."""
    missing = [package for package in target.packages if importlib.util.find_spec(package) is None]
    if missing:
        raise BundleError(
            f"an export to {to} needs {' and '.join(missing)}: pip install "
            f"'flatout[{target.extra}]'"
        )


def write(path: Path, content: bytes) -> None:
    """Write the file atomically, making its folder if need be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content)
    except OSError as error:
        raise BundleError(
            f"cannot write {path}: {error.strerror}; give --out another file"
        ) from error
