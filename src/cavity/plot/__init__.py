"""Pictures of results. Needs the plot extra (matplotlib), which is imported in `common` and nowhere else."""

from cavity.plot.clutter import clutter_figure
from cavity.plot.common import format_of, save
from cavity.plot.glm import glm_figure
from cavity.plot.gp import gp_figure, streaming_gp_figure
from cavity.plot.line import unit_mixture_figure
from cavity.plot.mixed import mixed_figure
from cavity.plot.mixture import mixture_figure, selection_figure

__all__ = [
    "clutter_figure",
    "format_of",
    "glm_figure",
    "gp_figure",
    "mixed_figure",
    "mixture_figure",
    "save",
    "selection_figure",
    "streaming_gp_figure",
    "unit_mixture_figure",
]


def __dir__() -> list[str]:
    return sorted(__all__)
