"""Callbacks that write down what they hear."""


def writing(seen, field="objective", stop=None):
    """A callback that appends (n_iter, a field of the event) to a list, and stops a fit at n_iter = `stop`."""

    def callback(event):
        seen.append((event.n_iter, getattr(event, field)))
        return event.n_iter == stop

    return callback
