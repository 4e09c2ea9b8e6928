"""What users see of an object when they ask `dir`, and with it the completion of notebooks: public names only."""


class Public:
    """Base of what users hold."""

    __slots__ = ()

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]
