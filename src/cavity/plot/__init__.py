"""Plots of results: classes like scikit-learn's Displays. Requires the plot extra (matplotlib)."""

from cavity.plot.calibration import CalibrationDisplay, PITDisplay
from cavity.plot.checks import QuantileDisplay, ResidualDisplay, RootogramDisplay
from cavity.plot.classes import ClassProbabilityDisplay
from cavity.plot.densities import DensityDisplay, ResponsibilityDisplay
from cavity.plot.effects import EffectDisplay, MapDisplay
from cavity.plot.group_curves import GroupCurveDisplay
from cavity.plot.intervals import IntervalDisplay
from cavity.plot.marginals import MarginalDisplay
from cavity.plot.mixtures import MixtureDisplay
from cavity.plot.outliers import OutlierDisplay
from cavity.plot.parameter_trend import ParameterTrendDisplay
from cavity.plot.predictions import PredictionDisplay, PrequentialDisplay
from cavity.plot.regions import RegionDisplay
from cavity.plot.terms import SurfaceDisplay, TermDisplay
from cavity.plot.traces import SelectionDisplay, TraceDisplay
from cavity.plot.volcano import VolcanoDisplay

__all__ = [
    "CalibrationDisplay",
    "ClassProbabilityDisplay",
    "DensityDisplay",
    "EffectDisplay",
    "GroupCurveDisplay",
    "IntervalDisplay",
    "MapDisplay",
    "MarginalDisplay",
    "MixtureDisplay",
    "OutlierDisplay",
    "PITDisplay",
    "ParameterTrendDisplay",
    "PredictionDisplay",
    "PrequentialDisplay",
    "QuantileDisplay",
    "RegionDisplay",
    "ResidualDisplay",
    "ResponsibilityDisplay",
    "RootogramDisplay",
    "SelectionDisplay",
    "SurfaceDisplay",
    "TermDisplay",
    "TraceDisplay",
    "VolcanoDisplay",
]


def __dir__() -> list[str]:
    return sorted(__all__)
