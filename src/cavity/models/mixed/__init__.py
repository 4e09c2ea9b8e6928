"""Mixed models: effects of columns, and effects that differ by group."""
