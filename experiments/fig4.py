"""Figure 4 of the paper: draws figures/fig4.png and .svg and prints the end points."""

import pathlib

import jax

from qkflow import reproduce

if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    print(reproduce("fig4", out=pathlib.Path(__file__).parents[1] / "figures").table())
