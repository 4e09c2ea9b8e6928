"""Large N: sources of rows, who runs the blocks, the ordered merge, minibatches."""
