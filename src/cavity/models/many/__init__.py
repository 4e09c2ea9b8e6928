"""Many models of one design: EP for a batch of responses at once, and what their posteriors share."""
