"""Products and quotients of scaled Gaussians: cavity beside expert and naive NumPy.

Run by `python benchmarks/run.py`, or `pytest benchmarks/cases/bench_gaussian.py`. Every implementation is compared
with another one before it is timed.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import pytest
from rivals import gaussian as reference

import cavity

BLOCK = 1 << 15  # elements: long enough to hide eleven slicings a block, short enough for level-3 caches
SINGLES = range(1000)  # products per timing where one is too short to time
KERNELS = {"multiply": cavity.multiply, "divide": cavity.divide}
EXPERT = {"multiply": reference.multiply_expert, "divide": reference.divide_expert}
NAIVE = {"multiply": reference.multiply_naive, "divide": reference.divide_naive}


@lru_cache(maxsize=1)
def factors(size):
    """Return the six operands: means around 0, precisions from 0.1 to 10, every tenth one negative."""
    rng = np.random.default_rng(1)
    operands = []
    for _ in range(2):
        rho = np.exp(rng.uniform(np.log(0.1), np.log(10.0), size))
        rho[rng.random(size) < 0.1] *= -1.0
        operands += [rho * rng.normal(size=size), rho, rng.normal(size=size)]
    return tuple(operands)


def touched(count, size):
    """Return `count` arrays whose pages exist: their first use is not what is timed."""
    return tuple(np.ones(size) for _ in range(count))


def assert_agree(results, expected):
    """Compare (tau, rho, gamma); gamma is a sum of terms of either sign, hence the absolute part."""
    for actual, desired in zip(results, expected, strict=True):
        np.testing.assert_allclose(actual, desired, rtol=1e-9, atol=1e-9)


def implementation_of(operation, name, operands, out):
    """Return a function without arguments that does the operation into `out` (naive: into new arrays)."""
    if name == "naive":
        return lambda: NAIVE[operation](*operands)
    if name == "expert":
        work = touched(2, len(out[0]))
        return lambda: EXPERT[operation](*operands, out, work)
    if name == "blocked":
        work = touched(2, min(BLOCK, len(out[0])))
        return lambda: reference.in_blocks(EXPERT[operation], operands, out, work)
    n_threads = 2 if name == "cavity, 2 threads" else 1
    return lambda: KERNELS[operation](*operands, out=out, n_threads=n_threads)


def array_cases():
    """Return (operation, size, implementation); equal sizes in a row, so that `factors` draws them once."""
    for size in (10**3, 10**5, 10**7):
        for operation in ("multiply", "divide"):
            for name in ("cavity", "cavity, 2 threads", "expert", "blocked", "naive"):
                if (name != "blocked" or size > BLOCK) and (name != "cavity, 2 threads" or size == 10**7):
                    yield operation, size, name


@pytest.mark.parametrize(("operation", "size", "name"), list(array_cases()))
def test_arrays(measure, operation, size, name):
    """Arrays of factors into given, reused outputs."""
    operands, out = factors(size), touched(3, size)
    call = implementation_of(operation, name, operands, out)
    results = call() or out
    assert_agree(results, (KERNELS if name in ("expert", "naive") else NAIVE)[operation](*operands))
    del results
    measure(f"{operation} N=1e{len(str(size)) - 1}", name, call, size, "element")


@pytest.mark.parametrize("name", ["cavity", "expert", "naive"])
@pytest.mark.parametrize("operation", ["multiply", "divide"])
def test_length_one(measure, operation, name):
    """Arrays of length 1."""
    tau1, rho1, gamma1, tau2, rho2, gamma2 = operands = factors(1)
    kernel, naive, expert = KERNELS[operation], NAIVE[operation], EXPERT[operation]
    out, work = touched(3, 1), touched(2, 1)

    def call_cavity():
        for _ in SINGLES:
            kernel(tau1, rho1, gamma1, tau2, rho2, gamma2, out=out)

    def call_expert():
        for _ in SINGLES:
            expert(tau1, rho1, gamma1, tau2, rho2, gamma2, out, work)

    def call_naive():
        for _ in SINGLES:
            naive(tau1, rho1, gamma1, tau2, rho2, gamma2)

    expert(*operands, out, work)
    assert_agree(out, kernel(*operands))
    assert_agree(naive(*operands), kernel(*operands, out=out))
    call = {"cavity": call_cavity, "expert": call_expert, "naive": call_naive}[name]
    measure(f"{operation} N=1, arrays", name, call, len(SINGLES), "element")


@pytest.mark.parametrize("name", ["cavity", "floats", "expert", "naive"])
def test_objects(measure, name):
    """`Gaussian * Gaussian`, one of each, beside a Python class and NumPy on arrays of length 1."""
    operands = factors(1)
    numbers = [float(a[0]) for a in operands]
    make = cavity.Gaussian if name == "cavity" else reference.FloatGaussian
    first, second = make(*numbers[:3]), make(*numbers[3:])
    out, work = touched(3, 1), touched(2, 1)

    def call_product():
        for _ in SINGLES:
            first * second

    def call_expert():
        for _ in SINGLES:
            reference.multiply_expert(*operands, out, work)

    def call_naive():
        for _ in SINGLES:
            reference.multiply_naive(*operands)

    product = first * second
    gamma = product.log_scale if name == "cavity" else product.gamma
    assert_agree((product.tau, product.rho, gamma), [a[0] for a in reference.multiply_naive(*operands)])
    call = {"expert": call_expert, "naive": call_naive}.get(name, call_product)
    measure("Gaussian * Gaussian", name, call, len(SINGLES), "element")


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("probe", ["copy", "triad"])
def test_memory(measure, probe, n_threads):
    """The memory's own pace at N=1e7, which run.py compares with that of `multiply`."""
    size = 10**7
    first, second, target = touched(3, size)

    def part(start, stop):
        if probe == "copy":
            np.copyto(target[start:stop], first[start:stop])
        else:
            np.add(first[start:stop], second[start:stop], out=target[start:stop])

    edges = [size * i // n_threads for i in range(n_threads + 1)]
    with ThreadPoolExecutor(n_threads) as pool:

        def call():
            list(pool.map(part, edges[:-1], edges[1:]))

        call()
        assert target[0] == target[-1] == (1.0 if probe == "copy" else 2.0)
        measure(f"memory {probe}", f"{n_threads} thread(s)", call, size, "element")
