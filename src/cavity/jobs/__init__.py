"""Fits as jobs: options, callback, progress, checkpoints, fingerprints and locks."""
