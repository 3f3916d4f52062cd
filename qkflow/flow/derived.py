"""Stop-gap by hand, same interface as the generated module that replaces it."""

import jax.numpy as jnp


def _softplus(x):
    return jnp.logaddexp(x, 0.0)


def log_odds(c, mu_qk):
    return jnp.log(c.n_distinct) - jnp.log(c.n_common) + mu_qk


def alpha(c, mu_qk):
    return jnp.exp(-_softplus(-log_odds(c, mu_qk)))


def log_one_minus_alpha(c, mu_qk):
    return -_softplus(log_odds(c, mu_qk))


def log_loss(c, z):
    w = jnp.log(c.n_classes - 1.0) - z
    return jnp.where(w < -36.0, w, jnp.log(_softplus(jnp.maximum(w, -36.0))))


def drive_ov(c, mu_ov, mu_qk, log_scale=0.0):
    odds = log_odds(c, mu_qk)
    z = mu_ov * alpha(c, mu_qk)
    return (
        c.lr_ov
        / c.n_distinct_vocab
        * jnp.exp(log_scale - _softplus(-odds) - jnp.logaddexp(z, jnp.log(c.n_classes - 1.0)))
    )


def drive_qk(c, mu_ov, mu_qk, log_scale=0.0):
    odds = log_odds(c, mu_qk)
    z = mu_ov * alpha(c, mu_qk)
    coefficient = (
        c.ratio * c.lr_ov * c.score_scale * (c.n_classes - 1.0) / (c.n_classes * c.n_query_vocab) * mu_ov
    )
    return coefficient * jnp.exp(
        log_scale - _softplus(-odds) - _softplus(odds) - jnp.logaddexp(z, jnp.log(c.n_classes - 1.0))
    )


def time_density(c, mu_ov, mu_qk, log_scale=0.0):
    z = mu_ov * alpha(c, mu_qk)
    return (
        c.n_distinct_vocab
        / c.lr_ov
        * (1.0 + jnp.exp(-log_odds(c, mu_qk)))
        * (jnp.exp(z - log_scale) + (c.n_classes - 1.0) * jnp.exp(-log_scale))
    )


def separation(c):
    return (
        c.ratio * c.n_distinct_vocab * c.score_scale * (c.n_classes - 1.0) / (c.n_classes * c.n_query_vocab)
    )


def kappa(c):
    return (1.0 / c.n_distinct_vocab + 1.0 / c.n_common_vocab) / (c.n_classes * c.n_query_vocab)


def line_gap(c):
    return c.score_scale * (1.0 / c.n_distinct_vocab + 1.0 / c.n_common_vocab)


def rescaling_ov(c, mu_ov):
    return jnp.sqrt(c.imbalance_ov**2 + 4.0 * c.n_distinct_vocab * mu_ov**2)


def rescaling_qk(c, sigma):
    return jnp.sqrt(c.imbalance_qk**2 + 4.0 * sigma**2)


def singular_values_qk(c):
    nu_1 = jnp.sqrt(c.n_query_vocab / c.n_distinct_vocab + c.n_query_vocab * c.n_classes / c.n_common_vocab)
    nu_2 = jnp.sqrt(c.n_query_vocab / c.n_distinct_vocab)
    return nu_1, nu_2


def gap(c, sigma_1, sigma_2):
    nu_1, nu_2 = singular_values_qk(c)
    b = c.n_distinct_vocab
    return c.score_scale * (
        sigma_1 / nu_1 * (1.0 / (b * c.n_classes) + 1.0 / c.n_common_vocab)
        + sigma_2 / nu_2 * (1.0 - 1.0 / c.n_classes) / b
    )
