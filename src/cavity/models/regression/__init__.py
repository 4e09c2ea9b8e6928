"""Linear regression and logistic regression by coordinate ascent."""
