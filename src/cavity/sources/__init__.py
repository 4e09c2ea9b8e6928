"""What a table can be: arrays, frames, files, folders, stores and collections, as rows that are read in blocks."""
