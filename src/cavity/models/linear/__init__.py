"""What models of linear predictors share: design, prior, defaults, evidence, learning, separation."""
