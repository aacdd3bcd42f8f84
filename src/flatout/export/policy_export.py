"""`export`: a saved policy as a file that other people's programs read; written whole or not at
all.

The packages that a file format needs are optional and loaded only when it is asked for.
"""

import difflib
import hashlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from flatout.errors import BundleError
from flatout.evaluation.saved_policy import SavedPolicy, load_policy
from flatout.foreign import to_path
from flatout.policies.bundle import Bundle
from flatout.runs import installed_version, write_bytes


class ExportContent(NamedTuple):
    """The content of a file, what is in it, and what whoever opens it should know."""

    content: bytes
    facts: dict[str, Any]  # plain JSON values
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class ExportedPolicy:
    """A file that was written for other programs."""

    file: Path
    to: str  # "onnx", "sb3" or "joblib"
    meaning: str
    bytes: int
    sha256: str
    contents: Mapping[str, Any]  # what is in it, as plain JSON values: its kind decides the names
    remarks: tuple[str, ...]  # what whoever opens it should know

    def facts(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
        return {
            "file": str(self.file),
            "to": self.to,
            "meaning": self.meaning,
            "bytes": self.bytes,
            "sha256": self.sha256,
            **self.contents,
            "remarks": list(self.remarks),
        }


@dataclass(frozen=True)
class Target:
    """A file format that a policy can be written in."""

    meaning: str
    suffix: str
    packages: tuple[str, ...]  # as they are imported
    extra: str  # the extra of flatout that installs them
    make: Callable[[Bundle], ExportContent]


def make_sb3(bundle: Bundle) -> ExportContent:
    """For `stable_baselines3.PPO.load`."""
    from flatout.export.sb3_zip import zip_of  # loads PyTorch

    facts = {
        "observation_size": bundle.observation_size,
        "action_size": bundle.action_size,
        "activation": bundle.activation,
        "stable_baselines3": installed_version("stable-baselines3"),
    }
    return ExportContent(
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


def make_onnx(bundle: Bundle) -> ExportContent:
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
    return ExportContent(
        onnx_of(bundle),
        facts,
        (
            "indicators (batch, lookback, asset, feature) are unscaled float64, newest bar "
            "first, NaN where there is no value; account is float32",
            "names and order of all of them are in the model's metadata",
        ),
    )


def make_joblib(bundle: Bundle) -> ExportContent:
    """The scaler as a .joblib file, for programs that use scikit-learn."""
    from flatout.export.sklearn_scaler import columns_of, joblib_of

    facts = {
        "scaler": bundle.recipe.recipe.scaler,
        "columns": columns_of(bundle.recipe),
        "scikit_learn": installed_version("scikit-learn"),
    }
    return ExportContent(
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
    if not isinstance(name, str) or name not in TARGETS:
        near = difflib.get_close_matches(str(name), TARGETS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise BundleError(
            f"there is no export to {name!r}: choose one of {', '.join(TARGETS)}{hint}"
        )
    return TARGETS[name]


def export_policy(
    folder: Path | str | SavedPolicy, to: str, out: Path | str | None = None
) -> ExportedPolicy:
    """Write a policy, or the one that is saved in a folder, as a file that other programs read.

    to   "onnx" (the policy with its scaling), "sb3" (a zip that Stable-Baselines3's PPO loads) or
         "joblib" (its scaler, for scikit-learn)
    out  the file to write, with the ending of its kind; by default here, named after the folder
    """
    place = (
        folder.folder
        if isinstance(folder, SavedPolicy)
        else to_path(folder, "the folder of a policy", BundleError)
    )
    target = find_target(to)
    usual = Path(f"{place.resolve().name}{target.suffix}")
    path = usual if out is None else to_path(out, "`out`", BundleError)
    if path.suffix != target.suffix:
        raise BundleError(
            f"{path}: an export to {to} is a {target.suffix} file; give it such a name"
        )
    check_installed(to, target)
    policy = folder if isinstance(folder, SavedPolicy) else load_policy(place)
    made = target.make(policy.bundle)
    write(path, made.content)
    return ExportedPolicy(
        file=path,
        to=to,
        meaning=target.meaning,
        bytes=len(made.content),
        sha256=hashlib.sha256(made.content).hexdigest(),
        contents=made.facts,
        remarks=made.remarks,
    )


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
            f"cannot write {path}: {error.strerror}; give `out` another file"
        ) from error
