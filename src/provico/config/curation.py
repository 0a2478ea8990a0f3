"""When a video stands out from its collection."""

from __future__ import annotations

from dataclasses import dataclass

from provico.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class CurationRules:
    """When a video stands out."""

    max_deviations: float = 2.5
    """A video is to be reviewed if its uncertainty or its disagreement is this many robust deviations above
    the median of the collection, and a clip is unclear if its uncertainty is."""
    trim_from_seconds: float = 20.0
    """Videos at least this long may be trimmed."""
    min_segment_seconds: float = 3.0
    """Parts shorter than this are not kept."""
    min_kept_share: float = 0.2
    """A video of which less than this share is clear is to be reviewed rather than trimmed."""
    step_seconds: float = 1.0
    """Time between the clips in which long videos are looked at."""

    def __post_init__(self) -> None:
        for name in ("max_deviations", "trim_from_seconds", "min_segment_seconds", "step_seconds"):
            if not getattr(self, name) > 0:
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(f"{option} is {getattr(self, name):g}, but it must be above 0.")
        if not 0 <= self.min_kept_share <= 1:
            raise ConfigError(f"--min-kept-share is {self.min_kept_share:g}, but it must be between 0 and 1.")
