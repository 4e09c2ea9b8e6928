"""Work on blocks of rows, by threads or workers of dask, and the ordered merge of what they return."""
