"""Every exception of flatout. Each message says what was given, what is allowed and what to do.

FlatoutError (ValueError)
├── BarsError        a file or table of bars was refused: file, symbol, row, reason
├── RecipeError      features that cannot be computed, fitted, saved or loaded as asked
├── BundleError      a saved policy that is damaged, or made for other bars, features, actions or
                     fills
├── RulesError       costs, limits, rewards or episodes that contradict each other
├── SettingsError    an unknown key or a bad value in flatout.toml, the environment or --set
└── RunError         a run that cannot begin, go on, or be written or read

Some are defined where they arise: `search` has DeadKnobError, `slow_envs` has WorkerDied,
EnvFailedError and StillBusyError, `crawl` has SiteUnreachable, ActionRefused and
ForbiddenAddressError.
"""

__all__ = [
    "BarsError",
    "BundleError",
    "FlatoutError",
    "RecipeError",
    "RulesError",
    "RunError",
    "SettingsError",
]


class FlatoutError(ValueError):
    """What every exception raised on purpose by flatout is."""


class BarsError(FlatoutError):
    """Bars were refused; the message names file, symbol, row and reason."""


class RecipeError(FlatoutError):
    """Features cannot be computed, fitted, saved or loaded as asked."""


class BundleError(FlatoutError):
    """A policy cannot be saved, loaded or used as asked."""


class RulesError(FlatoutError):
    """Costs, limits, rewards or episodes contradict each other or the bars."""


class SettingsError(FlatoutError):
    """An unknown key or a bad value in the settings."""


class RunError(FlatoutError):
    """A run cannot begin or go on, or its directory cannot be written or read."""
