"""The orthogonal-data setting, the four parameterizations, the learning rates and the start.

A [`Problem`][qkflow.setting.Problem] is everything that decides a trajectory: where the data come from
(`OrthogonalSetting`), how the layer is written (`Parameterization`), how fast its two circuits learn
(`LearningRates`) and where they begin (`Start`). All four are immutable and are JAX pytrees whose leaves
are their numbers. Built from concrete numbers they are checked, and hashable; copies that JAX makes
(under jit, vmap, grad or `jax.tree.map`) are neither.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import numbers
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax.core import Tracer

Number = Any
"""A Python or NumPy number, an array of them, or a JAX array or tracer (dtype float or integer).

A string ("0.1", "1e-4", "1/3", "inf") is kept as the exact number it spells, as are an int and a `Fraction`;
a float means its binary value. Routes in float64 round to the nearest float; certificates do not.
"""

T = TypeVar("T")

LARGEST = 10**300
"""An exact number must be one to float64 as well."""
LARGEST_EXPONENT = 100_000
"""Of a decimal that is kept exactly; beyond, it counts as 0 or infinite."""


class ArgumentError(ValueError):
    """An argument outside what is possible; the message is one sentence that says what would be right."""


class Parameterization(enum.Enum):
    """How the two circuits are written: attention (QK) first, output-value (OV) second.

    `C` is a collapsed circuit (one matrix), `F` a factorized one (a product of two matrices).

    >>> Parameterization("FACO").qk_factorized, Parameterization("FACO").ov_factorized
    (True, False)
    """

    CACO = "CACO"
    FACO = "FACO"
    CAFO = "CAFO"
    FAFO = "FAFO"

    @property
    def qk_factorized(self) -> bool:
        """Whether W_QK = W_K^T W_Q."""
        return self.value[0] == "F"

    @property
    def ov_factorized(self) -> bool:
        """Whether W_OV = W_O W_V."""
        return self.value[2] == "F"


def _concrete(value: Number) -> np.ndarray | None:
    """The value as a NumPy array when it is known now; None for tracers and what stands in for leaves."""
    if any(isinstance(part, Tracer) for part in (value if isinstance(value, list | tuple) else [value])):
        return None
    if not isinstance(value, numbers.Real | np.ndarray | jax.Array | list | tuple):
        raise TypeError(f"{value!r} is not a number")
    return np.asarray(value, dtype=float)


def exact(value: Number) -> Number:
    """A string as the int, `Fraction` or infinity that it spells; what spells none, and all else, as it is.

    >>> exact("1e-1"), exact("2/6"), exact("50"), exact("inf"), exact(0.1)
    (Fraction(1, 10), Fraction(1, 3), 50, inf, 0.1)
    """
    if not isinstance(value, str):
        return value
    try:
        _, _, exponent = value.lower().partition("e")
        if exponent and abs(int(exponent)) > LARGEST_EXPONENT:
            return float(value)
        number = Fraction(value)
    except ZeroDivisionError:
        return value
    except ValueError:
        try:
            return float(value)  # inf and nan
        except ValueError:
            return value
    return number.numerator if number.denominator == 1 else number


def nearest(value: Number) -> Number:
    """A `Fraction` as the nearest float; anything else as it is."""
    return float(value) if isinstance(value, Fraction) else value


def _keep_exact(obj: Any) -> None:
    """Strings as the numbers they spell."""
    for field in dataclasses.fields(obj):
        name, value = field.name, exact(getattr(obj, field.name))
        object.__setattr__(obj, name, value)
        if not isinstance(value, int | Fraction):
            continue
        if name.startswith("n_") and value.denominator != 1:
            raise ArgumentError(f"Argument `{name}` must be a whole number, but is {float(value)!r}.")
        if value and not Fraction(1, LARGEST) <= abs(value) <= LARGEST:
            flag = name + "_0" * name.startswith("mu")
            what = "0 or between 1e-300 and 1e300 in size"
            raise ArgumentError(f"Argument `{flag}` must be {what}, but is about 1e{_magnitude(value)}.")


def _magnitude(value: int | Fraction) -> int:
    return round((value.numerator.bit_length() - value.denominator.bit_length()) * math.log10(2))


def shown(value: Number) -> str:
    """A number as a message shows it: whole numbers without decimal point, of an array the first entry."""
    number = float(np.asarray(value, dtype=float).reshape(-1)[0])
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def require(name: str, value: Number, holds: Callable[[np.ndarray], Any], what: str) -> None:
    """Raise `ArgumentError` naming `name` unless every concrete entry of `value` is a number that `holds`.

    Args:
        name: the argument's name, as the caller spells it.
        value: a number or array; tracers pass unchecked.
        holds: elementwise test on a float NumPy array.
        what: what would be right, to follow "must be".
    """
    try:
        array = _concrete(value)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"Argument `{name}` must be {what}, but is {value!r}.") from None
    if array is None:
        return
    array = np.atleast_1d(array)
    array, held = np.broadcast_arrays(array, holds(array))
    wrong = np.isnan(array) | ~held
    if wrong.any():
        raise ArgumentError(f"Argument `{name}` must be {what}, but is {shown(array[wrong])}.")


def pytree(cls: type[T], static: tuple[str, ...] = (), forgotten: tuple[str, ...] = ()) -> type[T]:
    """Register a dataclass as a pytree whose unflattened copies skip `__post_init__`; JAX sees floats.

    Args:
        cls: the dataclass.
        static: fields that are no leaves; another value of one is compiled anew.
        forgotten: fields that nothing compiled depends on; copies hold `None` there.
    """
    names = tuple(f.name for f in dataclasses.fields(cls))  # type: ignore[arg-type]
    leaves = tuple(n for n in names if n not in (*static, *forgotten))

    def flatten_with_keys(obj):
        keyed = tuple((jax.tree_util.GetAttrKey(n), nearest(getattr(obj, n))) for n in leaves)
        return keyed, tuple(getattr(obj, n) for n in static)

    def flatten(obj):
        return tuple(nearest(getattr(obj, n)) for n in leaves), tuple(getattr(obj, n) for n in static)

    def unflatten(aux, children):
        obj = object.__new__(cls)
        nothing = dict.fromkeys(forgotten)
        known = (*zip(leaves, children, strict=True), *zip(static, aux, strict=True), *nothing.items())
        for name, child in known:
            object.__setattr__(obj, name, child)
        return obj

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def _whole(x: np.ndarray) -> np.ndarray:
    return np.isfinite(x) & (x == np.floor(x))


@dataclasses.dataclass(frozen=True)
class OrthogonalSetting:
    """The orthogonal data of Vashisht & Ramaswamy (2026), section 1 of the derivation.

    Each of M equally likely classes owns b distinct tokens and Q query tokens; a sequence holds m distinct
    tokens of its class and n common tokens out of B. Embeddings are orthonormal; scores are multiplied by
    beta. The defaults are the paper's.

    Args:
        n_classes: M, whole number, at least 2.
        n_distinct_vocab: b, whole number, at least `n_distinct`.
        n_distinct: m, whole number, at least 1.
        n_common: n, whole number, at least 1.
        n_common_vocab: B, whole number at least `n_common`, or infinity (no common token repeats).
        n_query_vocab: Q, whole number, at least 1.
        score_scale: beta, positive.

    Raises:
        ArgumentError: for a concrete number outside these ranges.

    >>> OrthogonalSetting(n_classes=4, n_distinct_vocab=5, n_distinct=7)
    Traceback (most recent call last):
        ...
    qkflow.setting.ArgumentError: Argument `n_distinct` must be at most `n_distinct_vocab` (5), but is 7.
    """

    n_classes: Number = 20
    n_distinct_vocab: Number = 50
    n_distinct: Number = 5
    n_common: Number = 50
    n_common_vocab: Number = math.inf
    n_query_vocab: Number = 50
    score_scale: Number = 1.0

    def __post_init__(self) -> None:
        _keep_exact(self)
        require("n_classes", self.n_classes, lambda x: _whole(x) & (x >= 2), "a whole number of at least 2")
        for name in ("n_distinct_vocab", "n_distinct", "n_common", "n_query_vocab"):
            value = getattr(self, name)
            require(name, value, lambda x: _whole(x) & (x >= 1), "a whole number of at least 1")
        require(
            "n_common_vocab",
            self.n_common_vocab,
            lambda x: (_whole(x) & (x >= 1)) | (x == math.inf),
            "a whole number of at least 1, or inf",
        )
        _at_most(self, "n_distinct", "n_distinct_vocab")
        _at_most(self, "n_common", "n_common_vocab")
        require("score_scale", self.score_scale, lambda x: (x > 0) & np.isfinite(x), "positive and finite")


def _at_most(setting: OrthogonalSetting, small: str, large: str) -> None:
    bound = _concrete(getattr(setting, large))
    if bound is not None:
        what = f"at most `{large}`" + (f" ({shown(bound)})" if bound.ndim == 0 else "")
        require(small, getattr(setting, small), lambda x: x <= bound, what)


@dataclasses.dataclass(frozen=True)
class LearningRates:
    """Learning rates of the two circuits: eta_OV, and r = eta_QK / eta_OV, the control parameter.

    Args:
        lr_ov: eta_OV, positive.
        ratio: r, positive.

    Raises:
        ArgumentError: for a concrete number that is not positive and finite.

    >>> LearningRates(lr_ov=0.5, ratio=10.0).lr_qk
    5.0
    """

    lr_ov: Number = 1.0
    ratio: Number = 1.0

    def __post_init__(self) -> None:
        _keep_exact(self)
        for name in ("lr_ov", "ratio"):
            require(name, getattr(self, name), lambda x: (x > 0) & np.isfinite(x), "positive and finite")

    @property
    def lr_qk(self) -> Number:
        """eta_QK = ratio * lr_ov."""
        return nearest(self.ratio) * nearest(self.lr_ov)


@dataclasses.dataclass(frozen=True)
class Start:
    """Where the two circuits begin, on the line of the reduced flow.

    Args:
        mu_ov: logit gap per unit of attention, at least 0.
        mu_qk: score gap that the softmax sees (already multiplied by `score_scale`), within +-700.
        imbalance_ov: lambda_OV = a^2 - v^2 of every singular amplitude of W_O W_V (factorized OV only).
        imbalance_qk: lambda_QK, the same for W_K^T W_Q (factorized QK only).

    Raises:
        ArgumentError: for a concrete number outside these ranges or not finite.
    """

    mu_ov: Number = 0.0
    mu_qk: Number = 0.0
    imbalance_ov: Number = 0.0
    imbalance_qk: Number = 0.0

    def __post_init__(self) -> None:
        _keep_exact(self)
        require("mu_ov_0", self.mu_ov, lambda x: (x >= 0) & np.isfinite(x), "finite and at least 0")
        require(
            "mu_qk_0", self.mu_qk, lambda x: abs(x) <= 700, "between -700 and 700, where e^mu_qk is a number"
        )
        require("imbalance_ov", self.imbalance_ov, np.isfinite, "finite")
        require("imbalance_qk", self.imbalance_qk, np.isfinite, "finite")

    @classmethod
    def default(cls, parameterization: Parameterization) -> Start:
        """0 for a collapsed circuit, .01 for a factorized one (0 is a saddle there), no imbalance."""
        return cls(
            mu_ov=0.01 if parameterization.ov_factorized else 0.0,
            mu_qk=0.01 if parameterization.qk_factorized else 0.0,
        )


class Constants(NamedTuple):
    """The numbers of a `Problem` under the names that the derived field uses (floats or float arrays)."""

    n_classes: Number
    n_distinct_vocab: Number
    n_distinct: Number
    n_common: Number
    n_common_vocab: Number
    n_query_vocab: Number
    score_scale: Number
    lr_ov: Number
    ratio: Number
    mu_ov_0: Number
    mu_qk_0: Number
    imbalance_ov: Number
    imbalance_qk: Number


@dataclasses.dataclass(frozen=True)
class Problem:
    """A self-attention layer to be followed: setting, parameterization, learning rates and start.

    Args:
        setting: the data.
        parameterization: a `Parameterization` or its name; static under JAX transformations.
        rates: the learning rates.
        start: the start; `None` takes `Start.default(parameterization)`.

    Raises:
        ArgumentError: for an unknown parameterization, an imbalance of a collapsed circuit, a factorized
            circuit started at zero without imbalance, or `mu_qk_0 <= 0` in a balanced factorized QK circuit.

    >>> Problem(parameterization="FAFO").start
    Start(mu_ov=0.01, mu_qk=0.01, imbalance_ov=0.0, imbalance_qk=0.0)
    """

    setting: OrthogonalSetting = dataclasses.field(default_factory=OrthogonalSetting)
    parameterization: Parameterization = Parameterization.CACO
    rates: LearningRates = dataclasses.field(default_factory=LearningRates)
    start: Start = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        try:
            kind = Parameterization(self.parameterization)
        except ValueError:
            names = ", ".join(p.value for p in Parameterization)
            raise ArgumentError(
                f"Argument `parameterization` must be one of {names}, but is {self.parameterization!r}."
            ) from None
        object.__setattr__(self, "parameterization", kind)
        if self.start is None:
            object.__setattr__(self, "start", Start.default(kind))
        start = self.start
        for circuit, factorized in (("ov", kind.ov_factorized), ("qk", kind.qk_factorized)):
            mu, imbalance = getattr(start, f"mu_{circuit}"), getattr(start, f"imbalance_{circuit}")
            if not factorized:
                what = f"0 for the collapsed {circuit.upper()} circuit of {kind.value}"
                require(f"imbalance_{circuit}", imbalance, lambda x: x == 0, what)
                continue
            lam = _concrete(imbalance)
            if lam is not None:
                what = f"positive for the balanced factorized {circuit.upper()} circuit of {kind.value}"
                require(f"mu_{circuit}_0", mu, lambda x, lam=lam: (x > 0) | (lam != 0), what)

    @property
    def constants(self) -> Constants:
        """The problem's numbers, flat, in the order of `Constants`; exact ones as the nearest floats."""
        return Constants(*map(nearest, self._numbers()))

    @property
    def exact_constants(self) -> Constants:
        """The problem's numbers as they are meant: ints and `Fraction`s, and inf for an infinite vocabulary.

        Raises:
            ArgumentError: for an array or a traced number.

        >>> Problem(rates=LearningRates(ratio="0.1")).exact_constants.ratio
        Fraction(1, 10)
        """
        return Constants(
            **{name: _rational(name, value) for name, value in self._numbers()._asdict().items()}
        )

    def in_floats(self) -> Problem:
        """The same layer with the nearest floats for exact numbers that are not whole.

        >>> Problem(rates=LearningRates(ratio="0.1")).in_floats().rates
        LearningRates(lr_ov=1.0, ratio=0.1)
        """
        if not any(isinstance(number, Fraction) for number in self._numbers()):
            return self

        def rounded(part: T) -> T:
            changes = {f.name: nearest(getattr(part, f.name)) for f in dataclasses.fields(part)}  # type: ignore[arg-type]
            return dataclasses.replace(part, **changes)  # type: ignore[type-var]

        return Problem(rounded(self.setting), self.parameterization, rounded(self.rates), rounded(self.start))

    def _numbers(self) -> Constants:
        s, r, start = self.setting, self.rates, self.start
        return Constants(
            **{f.name: getattr(s, f.name) for f in dataclasses.fields(OrthogonalSetting)},
            lr_ov=r.lr_ov,
            ratio=r.ratio,
            mu_ov_0=start.mu_ov,
            mu_qk_0=start.mu_qk,
            imbalance_ov=start.imbalance_ov,
            imbalance_qk=start.imbalance_qk,
        )


def _rational(name: str, value: Number) -> Number:
    if isinstance(value, int | Fraction):
        return value
    if isinstance(value, Tracer) or np.ndim(value) > 0:
        raise ArgumentError(f"Argument `{name}` must be one number for a certificate, but is {value!r}.")
    number = float(value)
    return number if math.isinf(number) else Fraction(number)


for _cls in (OrthogonalSetting, LearningRates, Start):
    pytree(_cls)
pytree(Problem, static=("parameterization",))
