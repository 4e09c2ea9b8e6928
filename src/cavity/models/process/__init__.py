"""What Gaussian processes share, of all rows and of inducing points: settings, defaults, rows, starts, predictions."""
