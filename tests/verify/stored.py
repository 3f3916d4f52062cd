"""The stored training record by which theories are judged; run this file to measure it anew."""

import pathlib

import jax

from qkflow.setting import Problem
from qkflow.verify import Record, measure

PATH = pathlib.Path(__file__).parent / "data" / "record.npz"


def stored() -> Record:
    return Record.load(PATH)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    PATH.parent.mkdir(exist_ok=True)
    measure(Problem(), progress=print).save(PATH)
