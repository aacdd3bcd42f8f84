"""`flatout bench learn`: time to quality of flatout's learners and of other trainers."""

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from flatout.cli.options import Json, print_json
from flatout.errors import SettingsError
from flatout.foreign import JsonTable
from flatout.settings.tables import ActionKind


def learning_quality(
    strength: Annotated[
        float, typer.Option("--strength-bps", min=0, help="Of the planted signal; 0 = none.")
    ] = 20.0,
    samples: Annotated[
        int, typer.Option("--samples", min=2048, help="Bars that each learner trades.")
    ] = 330_000,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Agents of each learner.")] = 1,
    every_rule: Annotated[
        bool,
        typer.Option("--every-rule", help="Stops, cooldown, forced reduction, reserve and lots."),
    ] = False,
    action: Annotated[
        ActionKind, typer.Option("--action", help="What learners ask for; the rules use weights.")
    ] = "weights",
    shorts: Annotated[
        float, typer.Option("--shorts", min=0, help="Largest short weight of the learners.")
    ] = 0.0,
    accounts: Annotated[
        int | None, typer.Option("--accounts", min=1, help="Of each learner; else its own number.")
    ] = None,
    learners: Annotated[
        list[str] | None, typer.Option("--learner", help="Only this one; may be repeated.")
    ] = None,
    peers: Annotated[
        bool,
        typer.Option(
            "--peers/--no-peers",
            help="Also Stable-Baselines3, SBX and FinRL on the same bars, and the speed of "
            "populations: about a quarter of an hour more.",
        ),
    ] = True,
    peer_samples: Annotated[
        int | None,
        typer.Option(
            "--peer-samples", min=1, help="Bars that each peer trades; else what suits it."
        ),
    ] = None,
    peer_seconds: Annotated[
        float, typer.Option("--peer-seconds", min=0, help="A peer's learning ends after them.")
    ] = 180.0,
    finrl: Annotated[
        Path | None,
        typer.Option("--finrl", help="Python of a virtualenv with FinRL 0.3.7; else not measured."),
    ] = None,
    as_json: Json = False,
) -> None:
    """How much of a planted edge each way of learning earns on bars that did not teach, and after
    how many samples and seconds, beside other trainers.
    """
    from flatout.bench.learning_peers import find_learning_peers  # loads JAX
    from flatout.bench.learning_quality import LEARNERS, measure_learning
    from flatout.bench.learning_speed import measure_populations

    chosen = tuple(learners or LEARNERS)
    if unknown := [name for name in chosen if name not in LEARNERS]:
        raise SettingsError(f"there is no learner {unknown[0]!r}: choose {', '.join(LEARNERS)}")
    if peers and (action != "weights" or shorts):
        raise SettingsError(
            "peers trade long-only weights: give --no-peers with another --action or with --shorts"
        )
    beside = find_learning_peers(peer_samples, peer_seconds, finrl) if peers else None
    console = Console(stderr=True)
    with console.status("the market") as status:
        result = measure_learning(
            strength,
            samples,
            seeds=range(1, seeds + 1),
            learners=chosen,
            every_rule=every_rule,
            action=action,
            shorts=shorts,
            accounts=accounts,
            peers=beside.follow if beside else None,
            on_point=lambda name, point: status.update(f"{name}: {point['samples']:,} samples"),
        )
        if beside:
            result |= {
                "peers": {name: limits._asdict() for name, limits in beside.limits.items()},
                "not_measured": beside.missing,
                **measure_populations(strength, every_rule, progress=status.update),
            }
    if as_json:
        print_json(result)
    else:
        show_curves(result)


def show_curves(result: JsonTable) -> None:
    """What each learner earned out of sample at its last point, when it reached the marks, and how
    far the default is ahead.
    """
    headings = ("samples", "s", "bps", "Sharpe", "traded", "50 %", "80 %", "95 %", "in")
    table = Table("", box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for name in ("rule", "patient_rule"):
        figures = result[name]
        cells = [f"{figures[key]:.2f}" for key in ("growth_bps", "sharpe", "turnover")]
        table.add_row(name.replace("_", " "), "", "", *cells, "", "", "", "")
    for name, points in result["curves"].items():
        last, when = points[-1], result["samples_to"][name].values()
        seconds = result["seconds_to"][name]["80%"]
        table.add_row(
            name,
            write_thousands(last["samples"]),
            f"{last['seconds']:.1f}",
            *(f"{last[key]:.2f}" for key in ("growth_bps", "sharpe", "turnover")),
            *("–" if samples is None else write_thousands(samples) for samples in when),
            "–" if seconds is None else f"{seconds:.1f} s",
        )
    missing = result.get("not_measured", {})
    for name in missing:
        table.add_row(name, "not installed")
    console = Console()
    console.print(table)
    console.print(
        "growth and share of the equity traded per bar, out of sample; 50, 80, 95 %: samples until "
        "that share of the rule's growth; in: seconds until 80 %",
        highlight=False,
    )
    for line in [*(f"{name}: {why}" for name, why in missing.items()), *describe_lead(result)]:
        console.print(line, highlight=False)


def write_thousands(samples: int) -> str:
    """A number of samples in few letters.

    >>> write_thousands(6_144), write_thousands(198_656)
    ('6.1k', '199k')
    """
    return f"{samples / 1000:.1f}k" if samples < 100_000 else f"{samples / 1000:,.0f}k"


def describe_lead(result: JsonTable) -> list[str]:
    """Sentences about the best peer and the speed of populations, where they were measured."""
    lines = []
    for key, who in (("", "the best of Stable-Baselines3 and SBX"), ("_finrl", "FinRL")):
        if result[f"ratio_seconds{key}"] is not None:
            bound = result[f"ratio_is_bound{key}"]
            least = "at least " if bound else ""
            lines.append(
                f"to 80 %, {who} takes {least}{result[f'ratio_seconds{key}']:.2f} times as many "
                f"seconds and {least}{result[f'ratio_samples{key}']:.2f} times as many samples as "
                f"pathwise per_asset{': it did not get there within its limit' if bound else ''}"
            )
    if "pathwise_steps_per_s" in result:
        lines.append(
            f"populations of {result['population']}, learning included: pathwise per_asset "
            f"{result['pathwise_steps_per_s']:,} samples a second, PPO with a flat network "
            f"{result['ppo_steps_per_s']:,}"
        )
    return lines
