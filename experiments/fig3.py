"""Figure 3 of the paper, published steps and five seeds: figures/fig3.*, in minutes."""

import pathlib
import sys

from qkflow.cli import main

if __name__ == "__main__":
    out = pathlib.Path(__file__).parents[1] / "figures"
    sys.exit(main(["reproduce", "fig3", "--budget", "full", "--out", str(out)]))
