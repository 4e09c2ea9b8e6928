"""Pictures of streaming sparse Gaussian processes: those of Gaussian processes, with the inducing points."""

from cavity.base import arrays
from cavity.base.frames import in_order
from cavity.plot.gp import process_figure


def streaming_gp_figure(state, X, y, names, target, title, classes=()):
    """Draw the function that a streaming Gaussian process knows, some of the data, and its inducing points.

    One column: the function with a band of 2 sd and, for real targets, a wider one that holds 95 % of new observations;
    a stroke at the foot for each inducing point. Two columns: a map of the probability of class 1 (or of the expected
    target, with another one of its sd), a cross for each inducing point. More: the function along each column, the
    others at their medians.

    Parameters
    ----------
    state : StreamingGPState
        What is known.
    X : array_like (N, D)
        Rows to draw, for example those of the last batch; the picture reaches as far as they do.
    y : array_like (N,)
        Their targets; 0, 1, ... if there are classes.
    names : list of str
        Names of the D columns, with units.
    target : str
        Name of the target, with its unit.
    title : str
        What the data are.
    classes : tuple of str, optional
        What 0, 1, ... stand for, if the target has classes.

    Returns
    -------
    matplotlib.figure.Figure
        To be saved with `save`.
    """
    X, y = arrays.real_array(in_order(X, state.columns), "X"), arrays.real_array(y, "y")
    return process_figure(state, X, y, names, target, title, classes, state.inducing)
