"""Who runs the blocks: this thread, or a few Python threads over `nogil` kernels.

Results come back in the order of the tasks, whoever finished first, so callers can merge them in a fixed order.
"""

from concurrent.futures import ThreadPoolExecutor


def run(tasks, n_threads=1):
    """Call every function in `tasks` and return the results in order; the first error in task order is raised."""
    tasks = list(tasks)
    if n_threads == 1 or len(tasks) < 2:
        return [task() for task in tasks]
    with ThreadPoolExecutor(max_workers=min(n_threads, len(tasks))) as pool:
        futures = [pool.submit(task) for task in tasks]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()


def spans(size, n_parts, multiple=1):
    """Return at most n_parts (start, stop) pairs that cover range(size), each start a multiple of `multiple`."""
    units = -(-size // multiple)
    edges = [units * part // n_parts * multiple for part in range(n_parts)] + [size]
    return [(start, stop) for start, stop in zip(edges, edges[1:], strict=False) if stop > start]
