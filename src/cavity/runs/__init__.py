"""Who works on blocks of rows: threads, or workers of dask; and the ordered merge of what they return."""
