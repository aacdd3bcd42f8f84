"""`flatout export`: a saved policy for Stable-Baselines3 or ONNX, or its scaler for
scikit-learn.
"""

from pathlib import Path
from typing import Annotated

import typer

from flatout.cli.options import Json, print_json
from flatout.export.policy_export import TARGETS, ExportedPolicy, export_policy
from flatout.terminal import say

TO_HELP = "; ".join(
    f"{name}: {target.meaning} ({target.suffix})" for name, target in TARGETS.items()
)


def export_command(
    bundle: Annotated[Path, typer.Argument(help="The folder of a saved policy.")],
    to: Annotated[str, typer.Option("--to", help=f"{TO_HELP}.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="The file to write; else here, named after the policy's folder."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a saved policy, or its scaler, as a file that other programs read."""
    exported = export_policy(bundle, to, out)
    if as_json:
        print_json(exported.facts())
    else:
        say("\n".join(describe_export(exported)))


def describe_export(exported: ExportedPolicy) -> list[str]:
    """What was written, and what to mind, in lines for people."""
    lines = [f"{exported.file}: {exported.meaning}, {exported.bytes:,} bytes"]
    for kind in ("inputs", "outputs"):
        for name, shape in exported.contents.get(kind, {}).items():
            lines.append(f"  {kind[:-1]} {name} ({', '.join(map(str, shape))})")
    return [*lines, *(f"  {remark}" for remark in exported.remarks)]
