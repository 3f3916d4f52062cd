"""The reduced flow: the derived field, its exact solution, its integration and its bounds."""
