"""`flatout demo`: the main job on a built-in market, offline: checks, a small search, and a verdict
that refuses.
"""

from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from flatout.bars.synthetic import built_in_market
from flatout.cli.audit import show
from flatout.cli.doctor import memory
from flatout.cli.options import Json, Out, Seed, print_json
from flatout.cli.verdict_box import show_verdict
from flatout.settings.loading import Resolved
from flatout.settings.tables import Settings
from flatout.terminal import say
from flatout.workers.devices import choose_devices

TABLES = {
    "train": {"timesteps": 16_000, "n_envs": 16, "n_steps": 64},
    "search": {"trials": 8, "finalists": 2},
}
MANY = 1000  # lanes: more than there are devices


def demo(out: Out = Path("runs"), seed: Seed = 0, as_json: Json = False) -> None:
    """Search a built-in random walk, on which nothing can be earned, and refuse the winner; about a
    minute.
    """
    from flatout.bench.calibration import own_registry
    from flatout.evaluation.audit import audit
    from flatout.search.progress import StudyProgress
    from flatout.search.run import StudyRequest, prepare, run_studies

    settings = Settings.model_validate({**TABLES, "search": {**TABLES["search"], "seed": seed}})
    chosen, panel = choose_devices("auto", None, MANY), built_in_market(seed=seed)
    slots = chosen.slots
    quiet = Console(quiet=True) if as_json else Console()
    quiet.print(
        f"[bold]flatout[/] on {', '.join(slot.name for slot in slots)}, {memory()}", highlight=False
    )
    quiet.print(
        (
            f"a random walk of {panel.n_assets} assets, {panel.n_bars:,} bars: gains here are "
            f"luck, turnover only costs"
        ),
        highlight=False,
    )
    findings = []
    for finding in audit(panel, settings, seed):
        findings.append(finding._asdict())
        show({**findings[-1], "details": ()}, quiet)
    name = f"demo-{datetime.now(UTC).strftime('%Y%m%dT%H%M%S')}"
    made = prepare(
        StudyRequest(name),
        Resolved(settings=settings, origin={}),
        panel,
        workers=len(slots),
        out=out,
        chosen=chosen,
    )
    quiet.print(
        f"search: {settings.search.trials} trials x {made.layout.splits} splits, "
        f"{len(made.market.folds.paths)} paths, "
        f"gaps of {made.market.folds.purge} and {made.market.folds.embargo} bars around every "
        f"test block",
        highlight=False,
    )
    with (
        own_registry(out / name / "registry"),
        StudyProgress([made], quiet=as_json) as progress,
    ):
        [report] = run_studies(
            [made],
            slots,
            out,
            None,
            on_round=progress.show_round,
            on_stage=progress.show_stage,
            on_note=progress.show_note,
        )
    if report is None:
        return
    if as_json:
        print_json({"checks": findings, **report.facts(), "folder": str(out / name)})
        return
    show_verdict(report, quiet)
    if not report.promotable:
        quiet.print("This is the right answer: nothing can be earned on this market.", style="bold")
    say(f"report: {out / name / 'report.html'}")
    quiet.print(
        "next: flatout init && flatout search flatout.toml --bars YOUR_BARS.parquet --plan",
        highlight=False,
    )
