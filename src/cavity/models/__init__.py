"""The models: a folder for each family, with its settings and fit in `model` and what comes out in `posterior`."""
