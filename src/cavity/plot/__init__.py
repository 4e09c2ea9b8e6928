"""Pictures of results. Needs the plot extra (matplotlib), which is imported in `common` and nowhere else."""

from .clutter import clutter_figure
from .common import format_of, save
from .glm import glm_figure
from .gp import gp_figure
from .line import unit_mixture_figure
from .mixture import mixture_figure, selection_figure
from .streaming_gp import streaming_gp_figure

__all__ = [
    "clutter_figure",
    "format_of",
    "glm_figure",
    "gp_figure",
    "mixture_figure",
    "save",
    "selection_figure",
    "streaming_gp_figure",
    "unit_mixture_figure",
]
