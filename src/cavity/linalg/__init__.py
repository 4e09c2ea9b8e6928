"""Linear algebra on several threads: lower triangles in tiles, sparse Cholesky factors, pairs of sparse rows."""
