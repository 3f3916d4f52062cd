"""The reduced gradient is, identically, that of the loss over all sequences by every matrix entry."""

import collections
import functools
import itertools
import math

import pytest
import sympy as sp

from qkflow.symbolic import derive
from qkflow.symbolic.symbols import B, M, Q, alpha, b, beta, eta_OV, eta_QK, m, mu_OV, mu_QK, n, z
from tests.planted import PLANTED

S_D, S_K, S_OTHER = sp.symbols("s_d s_k s_other")  # entries of W_QK on the manifold
X = sp.Symbol("X", positive=True)  # e^(beta s_k)
Y = sp.Symbol("Y", positive=True)  # e^(z / M)

CASES = [  # (M, b, m, n, B, Q)
    (3, 3, 2, 1, 4, 2),
    (3, 4, 2, 1, 5, 6),
    (2, 5, 1, 3, 4, 6),
    (3, 4, 2, 1, math.inf, 5),
]


@functools.cache
def one_sequence(n_classes, length, right):
    """The gradient of the loss on one sequence by its scores' and values' matrix entries."""
    w = sp.symbols(f"w:{length}")
    v = sp.symbols(f"v:{length}:{n_classes}")
    weights = [sp.exp(beta * entry) for entry in w]
    logits = [
        sum(weights[j] * v[j * n_classes + c] for j in range(length)) / sum(weights) for c in range(n_classes)
    ]
    loss = -sp.log(sp.exp(logits[right]) / sum(sp.exp(x) for x in logits))
    return w, v, [loss.diff(x) for x in w], [loss.diff(x) for x in v]


def rational(expression, numbers):
    """Exact normal form: alpha instead of e^(beta s_d), Y instead of e^(z/M)."""
    n_classes, _, m_, n_, B_, _ = numbers
    ratio = sp.Rational(n_, m_) * alpha / (1 - alpha)
    common = 1 if math.inf == B_ else X
    expression = expression.subs(sp.exp(beta * S_D), common * ratio).subs(sp.exp(beta * S_K), common)

    def power(exponent):
        return Y ** sp.cancel(sp.cancel(exponent) / (alpha * mu_OV) * n_classes)

    return sp.cancel(sp.together(expression.replace(sp.exp, power)))


@functools.cache
def brute_force(numbers):
    """The population gradient by every matrix entry on the manifold, as {kind of entry: set of values}."""
    n_classes, b_, m_, n_, B_, Q_ = numbers
    infinite = math.inf == B_
    commons = [("common", k) for k in range(n_ if infinite else B_)]
    classes = range(n_classes)

    def ov(c, token):
        if token[0] == "common":
            return sp.Integer(0)
        return mu_OV * (1 - sp.Rational(1, n_classes)) if token[0] == c else -mu_OV / n_classes

    def qk(token, query):
        if token[0] == "common":
            return sp.Integer(0) if infinite else S_K
        return S_D if token[0] == query[0] else S_OTHER

    @functools.cache
    def at_manifold(right, scores, values):
        w, v, by_w, by_v = one_sequence(n_classes, m_ + n_, right)
        point = dict(zip((*w, *v), (*scores, *values), strict=True))
        return [x.subs(point) for x in by_w], [x.subs(point) for x in by_v]

    sums = collections.defaultdict(collections.Counter)
    sequences = 0
    for c in classes:
        distinct = [(c, i) for i in range(b_)]
        for query, own, common in itertools.product(
            [(c, q) for q in range(Q_)],
            itertools.combinations(distinct, m_),
            itertools.combinations(commons, n_),
        ):
            tokens = (*own, *common)
            scores = tuple(qk(x, query) for x in tokens)
            values = tuple(ov(k, x) for x in tokens for k in classes)
            by_w, by_v = at_manifold(c, scores, values)
            sequences += 1
            for j, token in enumerate(tokens):
                sums["QK", token, query][by_w[j]] += 1
                for k in classes:
                    sums["OV", token, k][by_v[j * n_classes + k]] += 1

    normal = functools.cache(lambda x: rational(x, numbers))
    kinds = collections.defaultdict(set)
    everything = [("QK", token, (k, q)) for token in _tokens(numbers) for k in classes for q in range(Q_)]
    everything += [("OV", token, k) for token in _tokens(numbers) for k in classes]
    for entry in everything:
        circuit, token, other = entry
        where = "common" if token[0] == "common" else "own"
        if where == "own" and token[0] != (other[0] if circuit == "QK" else other):
            where = "other"
        total = sum((normal(x) * count for x, count in sums[entry].items()), sp.Integer(0))
        kinds[circuit, where].add(sp.cancel(total / sequences))
    return kinds


def _tokens(numbers):
    n_classes, b_, _, _, B_, _ = numbers
    common = [] if math.inf == B_ else [("common", k) for k in range(B_)]
    return [(c, i) for c in range(n_classes) for i in range(b_)] + common


def reduced(derivation, numbers):
    """The same from the drives and directions of a derivation."""
    d = derivation
    result = {}
    for circuit, drive, direction, eta in (
        ("OV", d.drive_ov, d.direction_ov, eta_OV),
        ("QK", d.drive_qk, d.direction_qk, eta_QK),
    ):
        for where, part in direction._asdict().items():
            entry = (-drive * part / eta).subs(dict(zip((M, b, m, n, Q), numbers[:4] + numbers[5:])))
            entry = entry.subs(sp.exp(z), Y ** numbers[0]).subs(1 / B, 1 / sp.sympify(numbers[4]))
            result[circuit, where] = entry
    return result


@pytest.mark.parametrize("numbers", CASES, ids=str)
def test_every_matrix_entry(numbers):
    kinds, expected = brute_force(numbers), reduced(derive(), numbers)
    assert set(kinds) == {k for k in expected if numbers[4] != math.inf or k[1] != "common"}
    for kind, values in kinds.items():
        assert len(values) == 1, kind
        assert sp.cancel(next(iter(values)) - expected[kind]) == 0, kind


def attention_is_right(derivation):
    mass = m * sp.exp(beta * S_D) / (m * sp.exp(beta * S_D) + n * sp.exp(beta * S_K))
    return sp.simplify(mass - derivation.attention.subs(mu_QK, beta * (S_D - S_K))) == 0


def test_attention():
    assert attention_is_right(derive())


@pytest.mark.parametrize("name", [x for x in PLANTED if "R" not in x and "keys" not in x])
def test_a_planted_error_is_seen(name):
    numbers = CASES[1]
    wrong = PLANTED[name](derive())
    kinds, expected = brute_force(numbers), reduced(wrong, numbers)
    differs = any(sp.cancel(next(iter(v)) - expected[kind]) != 0 for kind, v in kinds.items())
    assert differs or not attention_is_right(wrong)
