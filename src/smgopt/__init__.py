"""Stochastic MG/OPT: train very deep residual networks through a hierarchy of shallower ones."""
