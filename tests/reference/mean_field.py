"""Mean field by the book: loops, explicit responsibilities, every term of the ELBO written down."""

import itertools
import math

import numpy as np
from scipy import stats


def unit_mixture_responsibilities(y, mean, variance, weights, noise_variance):
    """q(z_n = k) proportional to w_k exp(-E[(y_n - theta_k)^2] / (2 noise_variance)), one point at a time."""
    resp = np.zeros((len(y), len(mean)))
    for n, value in enumerate(y):
        logs = [
            math.log(w) - ((value - m) ** 2 + v) / (2 * noise_variance)
            for m, v, w in zip(mean, variance, weights, strict=True)
        ]
        top = max(logs)
        terms = [math.exp(log - top) for log in logs]
        resp[n] = [term / sum(terms) for term in terms]
    return resp


def unit_mixture_elbo(y, resp, mean, variance, weights, noise_variance, prior_mean, prior_variance):
    """E_q[log p(y, z, theta)] - E_q[log q(z)] - E_q[log q(theta)], term by term."""
    total = 0.0
    for n, value in enumerate(y):
        for k, r in enumerate(resp[n]):
            if r == 0.0:
                continue
            square = (value - mean[k]) ** 2 + variance[k]
            total += r * (-0.5 * math.log(2 * math.pi * noise_variance) - square / (2 * noise_variance))
            total += r * math.log(weights[k]) - r * math.log(r)
    for m, v in zip(mean, variance, strict=True):
        total += -0.5 * math.log(2 * math.pi * prior_variance) - ((m - prior_mean) ** 2 + v) / (2 * prior_variance)
        total += 0.5 * math.log(2 * math.pi * math.e * v)
    return total


def unit_mixture_cavi(y, mean, variance, weights, noise_variance, prior_mean, prior_variance, n_sweeps):
    """Sweep; return the moments of q(theta), its responsibilities and the ELBO of every sweep."""
    elbos = []
    for _ in range(n_sweeps):
        resp = unit_mixture_responsibilities(y, mean, variance, weights, noise_variance)
        elbos.append(unit_mixture_elbo(y, resp, mean, variance, weights, noise_variance, prior_mean, prior_variance))
        mean, variance = mean.copy(), variance.copy()
        for k in range(len(mean)):
            precision = 1 / prior_variance + resp[:, k].sum() / noise_variance
            tau = prior_mean / prior_variance + (resp[:, k] * y).sum() / noise_variance
            mean[k], variance[k] = tau / precision, 1 / precision
    return mean, variance, np.array(elbos)


def unit_mixture_evidence(y, k, weights, noise_variance, prior_mean, prior_variance):
    """log p(y) exactly: a sum over all K^N assignments, the points of a component being jointly Gaussian."""
    logs = []
    for assignment in itertools.product(range(k), repeat=len(y)):
        total = sum(math.log(weights[j]) for j in assignment)
        for j in range(k):
            points = np.array([value for value, z in zip(y, assignment, strict=True) if z == j])
            if len(points):
                covariance = noise_variance * np.eye(len(points)) + prior_variance
                total += stats.multivariate_normal(np.full(len(points), prior_mean), covariance).logpdf(points)
        logs.append(total)
    return float(np.logaddexp.reduce(logs))
