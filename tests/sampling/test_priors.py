"""Every default bijector of common priors, through `sample_posterior`, against what their draws are known to be."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tests.numeric import assert_moments

tfd, tfb = tfp.distributions, tfp.bijectors
F = np.float32
ROWS, COLUMNS = np.array([[1.0, 0.0], [0.6, 0.8]]), np.array([[2.0, 0.0], [-0.5, 0.5]])


def model():
    return tfd.JointDistributionNamed(
        {
            'half_normal': tfd.HalfNormal(F(2.0)),
            'half_cauchy': tfd.HalfCauchy(F(0.0), F(3.0)),
            'exponential': tfd.Exponential(F(0.3)),
            'inverse_gamma': tfd.InverseGamma(F(5.0), F(4.0)),
            'gamma': tfd.Gamma(F(2.0), F(0.5)),
            'beta': tfd.Beta(F(2.0), F(3.0)),
            'log_normal': tfd.LogNormal(F(1.0), F(0.5)),
            'uniform': tfd.Uniform(F(-1.0), F(3.0)),
            'dirichlet': tfd.Dirichlet(np.array([2.0, 3.0, 1.5], F)),
            'lkj': tfd.LKJ(3, F(2.0)),
            'cholesky_lkj': tfd.CholeskyLKJ(3, F(1.5)),
            'ordered': tfd.TransformedDistribution(tfd.Sample(tfd.Normal(F(0.0), F(1.0)), 3), tfb.Ascending()),
            'matrix_normal': tfd.MatrixNormalLinearOperator(
                np.zeros((2, 2), F),
                tf.linalg.LinearOperatorLowerTriangular(ROWS.astype(F)),
                tf.linalg.LinearOperatorLowerTriangular(COLUMNS.astype(F)),
            ),
        }
    )


def uniforms(draws):
    """Functions of the draws that are uniform on (0, 1), by variable, `[n, chains, k]`."""
    stats = scipy.stats
    by_scalar = {
        'half_normal': stats.halfnorm(scale=2.0),
        'half_cauchy': stats.halfcauchy(scale=3.0),
        'exponential': stats.expon(scale=1.0 / 0.3),
        'inverse_gamma': stats.invgamma(5.0, scale=4.0),
        'gamma': stats.gamma(2.0, scale=2.0),
        'beta': stats.beta(2.0, 3.0),
        'log_normal': stats.lognorm(0.5, scale=np.e),
        'uniform': stats.uniform(-1.0, 4.0),
    }
    found = {name: law.cdf(draws[name])[..., None] for name, law in by_scalar.items()}
    found['dirichlet'] = stats.beta([2.0, 3.0, 1.5], [4.5, 3.5, 5.0]).cdf(draws['dirichlet'])
    below = np.tril_indices(3, -1)
    # Each correlation r of LKJ(d, eta) has (r + 1) / 2 ~ Beta(a, a), a = eta + d / 2 - 1.
    found['lkj'] = stats.beta(2.5, 2.5, -1.0, 2.0).cdf(draws['lkj'][..., below[0], below[1]])
    root = draws['cholesky_lkj']
    correlation = root @ np.swapaxes(root, -1, -2)
    found['cholesky_lkj'] = stats.beta(2.0, 2.0, -1.0, 2.0).cdf(correlation[..., below[0], below[1]])
    ordered = draws['ordered']
    assert np.all(np.diff(ordered, axis=-1) > 0.0)
    found['ordered'] = stats.norm.cdf(np.concatenate([ordered[..., :1], np.log(np.diff(ordered, axis=-1))], axis=-1))
    whitened = np.linalg.inv(ROWS) @ draws['matrix_normal'] @ np.linalg.inv(COLUMNS).T
    found['matrix_normal'] = stats.norm.cdf(whitened.reshape(*whitened.shape[:2], -1))
    return found


@pytest.mark.statistical
def test_draws_of_common_priors():
    result = rm.sample_posterior(1500, model(), num_chains=8, seed=1)
    print(result.choice, result.seconds, result.trace['acceptance_rate'].mean())
    found = uniforms({name: x.astype(np.float64) for name, x in result.variables().items()})
    assert set(found) == set(result.names)
    for name, u in found.items():
        print(name, u.mean(axis=(0, 1)), u.std(axis=(0, 1)))
        assert_moments(u, 0.5, np.sqrt(1.0 / 12.0))


def test_wishart_matrices_are_refused():
    """TFP's default bijector maps to `softplus(softplus(y))` on the diagonal of a root, which is above log 2."""
    law = tfd.WishartTriL(F(5.0), scale_tril=np.eye(2, dtype=F))
    smallest = law.experimental_default_event_space_bijector().forward(np.full(3, -30.0, F))
    assert np.linalg.cholesky(smallest)[0, 0] > 0.69
    with pytest.raises(ValueError, match='`w` is a Wishart matrix.*LKJ'):
        rm.sample_posterior(10, tfd.JointDistributionNamed({'w': law}))
