"""Log densities of constrained values, starts that cannot be left, advice, pictures, and what ArviZ gets."""

import sys
import types

import matplotlib
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tests import targets
from tests.numeric import assert_moments
from tfp_rmhmc.sampling import advice
from tfp_rmhmc.sampling.problem import problem_of

matplotlib.use('Agg')
tfd, tfb = tfp.distributions, tfp.bijectors
SEED = tf.constant([0, 1])


def gamma_and_dirichlet(rate, shares):
    """Gamma(3, 2) and Dirichlet(2, 3, 4), as functions of the constrained values."""
    return 2.0 * tf.math.log(rate) - 2.0 * rate + tf.reduce_sum([1.0, 2.0, 3.0] * tf.math.log(shares), axis=-1)


@pytest.mark.statistical
def test_constrained_draws_with_names():
    rng = np.random.default_rng(0)
    start = [rng.gamma(3.0, 0.5, size=4).astype(np.float32), rng.dirichlet([2, 3, 4], size=4).astype(np.float32)]
    bijector = [tfb.Softplus(), tfb.IteratedSigmoidCentered()]
    result = rm.sample_posterior(
        600, gamma_and_dirichlet, initial_state=start, bijector=bijector, names=['rate', 'shares'], seed=1
    )
    draws = {name: x.astype(np.float64) for name, x in result.variables().items()}
    assert list(draws) == ['rate', 'shares']
    np.testing.assert_allclose(draws['shares'].sum(axis=-1), 1.0, rtol=1e-5)
    deviation = np.sqrt(1.0 / 12.0)
    assert_moments(scipy.stats.gamma(3.0, scale=0.5).cdf(draws['rate']), 0.5, deviation)
    assert_moments(scipy.stats.beta([2, 3, 4], [7, 6, 5]).cdf(draws['shares']), 0.5, deviation)


def test_the_target_is_that_of_the_transformed_distribution():
    """Value for value; also where the log density is a sum over batches, and for a Jacobian that is constant."""
    bijector = {'a': None, 'b': tfb.Exp(), 'c': tfb.Scale(np.float64(2.0))}
    start = {'a': np.zeros(4), 'b': np.ones((4, 2)), 'c': np.ones((4, 3))}
    normal, log_normal = tfd.Normal(np.float64(0.0), 1.0), tfd.LogNormal(np.float64(0.0), 1.0)

    def log_prob(a, b, c):
        return normal.log_prob(a) + tf.reduce_sum(log_normal.log_prob(b), -1) + tf.reduce_sum(normal.log_prob(c), -1)

    summed = rm.SumOverBatches(
        lambda piece, *parts: piece * log_prob(*parts), tf.data.Dataset.from_tensor_slices(np.array([0.3, 0.7]))
    )
    y = [tf.constant(np.random.default_rng(0).standard_normal(x.shape)) for x in start.values()]
    half = tfd.Normal(np.float64(0.0), 0.5)
    expected = normal.log_prob(y[0]) + sum(tf.reduce_sum(law.log_prob(x), -1) for law, x in [(normal, y[1]), (half, y[2])])
    for model in (log_prob, summed):
        problem = problem_of(model, 4, start, SEED, {}, bijector)
        np.testing.assert_allclose(problem.target_log_prob_fn(*y), expected, rtol=1e-12)
        np.testing.assert_allclose(problem.start[1], 0.0)
        constrained = problem.constrain(y)
        np.testing.assert_allclose(constrained['b'], np.exp(y[1]))
        assert problem.names == ['a', 'b', 'c']


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'bijector': [tfb.Exp(), tfb.Exp()]}, '`bijector` must be a `tfb.Bijector` for each part'),
        ({'bijector': 'exp'}, "`bijector` must be .* got 'exp'"),
        ({'names': ['a', 'b']}, r"`names` must be 1 different names, .* got \['a', 'b'\]"),
        ({'names': 'a'}, "`names` must be .* got 'a'"),
        (
            {'bijector': tfb.Exp(), 'initial_state': -np.ones((4, 2))},
            '`initial_state` must be .*support.*`x` is not in chain 0',
        ),
    ],
)
def test_wrong_bijectors_and_names_are_one_sentence(change, message):
    with pytest.raises(ValueError, match=message):
        rm.sample_posterior(5, targets.skewed, **({'initial_state': np.ones((4, 2))} | change))
    model = tfd.JointDistributionNamed({'a': tfd.Normal(0.0, 1.0)})
    with pytest.raises(ValueError, match='`names` is for log densities'):
        rm.sample_posterior(5, model, names=['b'])


def test_a_start_that_is_not_finite_names_the_variable():
    start = [np.zeros(4), np.array([1.0, 1.0, -1.0, 1.0])]
    with pytest.raises(ValueError, match='start of chain 2 is nan, not finite, nor is its gradient with respect to `tau`.'):
        rm.sample_posterior(5, lambda mu, tau: -tf.square(mu) + tf.sqrt(tau), initial_state=start, names=['mu', 'tau'])
    with pytest.raises(ValueError, match='gradient .* with respect to `tau` is not finite at the start of chain 0'):
        rm.sample_posterior(
            5, lambda mu, tau: -tf.square(mu) - tf.sqrt(tau), initial_state=[np.zeros(4)] * 2, names=['mu', 'tau']
        )
    model = tfd.JointDistributionNamed(
        {
            'a': tfd.Normal(0.0, 1.0),
            'b': lambda a: tfd.Normal(0.0, tf.where(a < 10.0, np.float32(np.nan), 1.0)),
            'y': lambda b: tfd.Normal(b, 1.0),
        }
    )
    with pytest.raises(ValueError, match='start of chain 0 is nan, not finite: that of `b` is not.'):
        rm.sample_posterior(5, model, y=1.0)


def test_advice_names_options_that_the_kernel_has():
    def all_of(kernel, choice=''):
        return ' '.join(
            [
                advice.against_divergence(kernel, choice),
                advice.against_failed_solves(kernel),
                advice.against_caps(kernel),
                advice.against_slow_tails(kernel),
            ]
        )

    for kernel in ('nuts', 'rnuts'):
        assert 'trajectory_length' not in all_of(kernel)
    for kernel in ('auto', 'hmc', 'nuts'):
        assert 'alpha' not in all_of(kernel, f'kernel {kernel!r}')
        assert '`metric`' not in all_of(kernel)
    for kernel in ('auto', 'explicit', 'implicit', 'hmc', 'nuts', 'rnuts'):
        assert f'kernel={kernel!r}' not in all_of(kernel)
        assert 'target_accept_prob' in all_of(kernel)
    assert 'alpha' in all_of('explicit', "kernel 'explicit', SoftAbsMetric")
    assert 'alpha' not in all_of('explicit', "kernel 'explicit', MongeMetric")


def some_draws(num=200):
    rng = np.random.default_rng(0)
    v = rng.standard_normal((num, 4))
    x = np.exp(0.5 * v)[..., None] * rng.standard_normal((num, 4, 3))
    diverging = (v < -1.5) & (rng.uniform(size=v.shape) < 0.3)
    trace = {'lp': -v, 'diverging': diverging, 'energy': v, 'status': np.zeros(v.shape, int)}
    return rm.PosteriorDraws({'v': tf.constant(v), 'x': tf.constant(x)}, trace, {}, ['v', 'x'], {})


def test_pictures(tmp_path):
    result = some_draws()
    axes = result.plot_trace()
    assert axes.shape == (4, 2)
    assert [row[0].get_ylabel() for row in axes] == ['v', 'x[0]', 'x[1]', 'x[2]']
    marks = axes[0, 1].lines[-1].get_xdata()
    np.testing.assert_array_equal(marks, np.flatnonzero(result.trace['diverging'].any(axis=1)))
    axes[0, 0].figure.savefig(tmp_path / 'trace.png')
    axes = result.plot_pairs(max_coordinates=2)
    assert axes.shape == (2, 2)
    axes = result.plot_pairs(['v', 'x'])
    assert [axis.get_xlabel() for axis in axes[-1]] == ['v', 'x[0]', 'x[1]', 'x[2]']
    assert len(axes[1, 0].lines[-1].get_xdata()) == result.trace['diverging'].sum()
    axes[0, 0].figure.savefig(tmp_path / 'pairs.png')
    with pytest.raises(ValueError, match=r"`names` must be some of \['v', 'x'\], got 'w'"):
        result.plot_trace(['w'])
    matplotlib.pyplot.close('all')


def test_what_arviz_gets():
    """An `InferenceData` from ArviZ 0.x; 1.x, whose `from_dict` takes one dict of groups, is asked in its own way."""
    result = some_draws(20)
    assert type(result.to_arviz()).__name__ == 'InferenceData'
    newer = types.ModuleType('arviz')
    newer.from_dict = lambda data, *, coords=None, dims=None: ('DataTree', data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, 'arviz', newer)
        kind, groups = result.to_arviz()
    assert kind == 'DataTree'
    assert groups['posterior']['x'].shape == (4, 20, 3)
    assert set(groups) == {'posterior', 'sample_stats'}
