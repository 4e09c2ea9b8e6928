"""Callbacks that write down what they hear."""


def writing(seen, field="objective", stop=None, but="trial"):
    """A callback that appends (n_iter, a field of the event) to a list, and stops a fit at n_iter = `stop`.

    It does not hear of stages that begin with `but`.
    """

    def callback(event):
        if event.stage.startswith(but):
            return False
        seen.append((event.n_iter, getattr(event, field)))
        return event.n_iter == stop

    return callback
