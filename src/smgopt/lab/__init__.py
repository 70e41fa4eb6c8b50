"""The laboratory: everything that a person runs around the method, from data sets to plots."""
