"""Formulas: their notation, and the columns that they make of tables, for all families of models."""
