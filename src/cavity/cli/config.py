"""Options of a command from a TOML file: its keys are the long options, and what is typed wins."""

import difflib
import tomllib

from cavity.base.errors import name_file_in_errors


def with_config(arguments, commands):
    """Return what was typed, with the options of the file of --config before it: what is typed wins.

    Parameters
    ----------
    arguments : list of str
        What was typed.
    commands : dict
        The parser of the command by its words, as ("fit", "glm"); what is no option gets a default there.

    Raises
    ------
    ValueError
        Naming the file and the key.
    """
    path = _find_config(arguments)
    typed = [argument.partition("=")[0] for argument in arguments]
    if any(len(argument) > 3 and argument != "--config" and "--config".startswith(argument) for argument in typed):
        raise ValueError("--config: write this option in full")
    if path is None or not commands:
        return arguments
    [(_, command)] = commands.items()
    with name_file_in_errors(path), open(path, "rb") as file:
        try:
            job = tomllib.load(file)
        except ValueError as error:  # of TOML, and of characters
            raise ValueError(f"{path}: not readable as TOML ({error})") from error
    options = {option[2:] for action in command._actions for option in action.option_strings if len(option) > 2}
    positionals = {action.dest: action for action in command._actions if not action.option_strings}
    for key in job:
        if key not in options | positionals.keys() or key in ("help", "config"):
            similar = difflib.get_close_matches(key, [*options, *positionals], n=1)
            hint = f"; is it {similar[0]!r}?" if similar else ""
            raise ValueError(f"{path}: {' '.join(arguments[:2])} has no option {key!r}{hint}")
    for key in job.keys() & positionals.keys():
        positionals[key].nargs, positionals[key].required, positionals[key].default = "?", False, str(job[key])
    keys = [key for key in job if key in options and not (key == "column" and "--column" in typed)]
    extra = [argument for key in keys for argument in _as_arguments(path, key, job[key], options)]
    return [*_, *extra, *arguments[len(_) :]]


def _find_config(arguments):
    """Return the file of --config, None if there is none."""
    for argument, after in zip(arguments, [*arguments[1:], None], strict=False):
        if argument == "--config":
            return after
        if argument.startswith("--config="):
            return argument.partition("=")[2]
    return None


def _as_arguments(path, key, value, options):
    """Return what would be typed for a key."""
    if isinstance(value, bool):
        return [f"--{key}"] if value else [f"--no-{key}"] if f"no-{key}" in options else []
    several = value if isinstance(value, list) else [value]
    if not several or not all(isinstance(item, str | int | float) and not isinstance(item, bool) for item in several):
        raise ValueError(f"{path}: {key} must be a number, a text, true or false, or a list of these, got {value!r}")
    if key == "column":  # which is typed once for each
        return [f"--{key}={item}" for item in several]
    return [f"--{key}={','.join(map(str, several))}"]
