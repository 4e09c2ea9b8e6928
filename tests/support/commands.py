"""The command line, run in this process, and tables for it."""

from cavity.cli import main


def runner(capsys, *command):
    """Return what runs a command, or another one, with arguments: status, printed text, errors."""

    def run(*arguments, command=command):
        try:
            status = main([str(a) for a in (*command, *arguments)])
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    return run


def write(path, columns):
    """Write a dict of columns as .csv, numbers to their last bit."""
    text = [[value if isinstance(value, str) else repr(float(value)) for value in cells] for cells in columns.values()]
    path.write_text("\n".join(",".join(row) for row in [list(columns), *zip(*text, strict=True)]) + "\n")
    return path
