"""What everything stands on: checks of arrays and numbers, errors, results, files, the loop of an iteration."""
