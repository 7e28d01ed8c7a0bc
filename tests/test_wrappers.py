"""TFP's wrappers around our kernels: the draws are right, not only there."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tests import targets
from tests.integrator.registry import separable_metric

tfd, tfb, tfm, tfxm = tfp.distributions, tfp.bijectors, tfp.mcmc, tfp.experimental.mcmc
pytestmark = pytest.mark.statistical

KERNELS = {'explicit': rm.ExplicitRiemannianHMC, 'implicit': rm.ImplicitRiemannianHMC, 'separable': rm.RiemannianHMC}
METRIC = rm.DiagonalMetric(diagonal_fn=lambda q, g: 1.0 + tf.sigmoid(q))
SHAPES = np.linspace(1.5, 3.0, 3)


def metric_of(name, metric, separable):
    """The metric of a test, or a separable one for the kernel that is to use it."""
    return separable if name == 'separable' else metric


def skewed_kernel(name, **kwargs):
    metric = metric_of(name, METRIC, separable_metric(3))
    return KERNELS[name](targets.skewed, np.float64(0.3), 5, metric=metric, **kwargs)


def assert_skewed(draws, num_chains_axis=1, k=4.5):
    """Mean and second moment of log-gamma coordinates within k Monte Carlo standard errors."""
    for column, shape in zip(np.moveaxis(np.asarray(draws), -1, 0), SHAPES, strict=True):
        exact = scipy.stats.loggamma(shape)
        for values, mean in [(column, exact.mean()), ((column - exact.mean()) ** 2, exact.var())]:
            ess = np.sum(tfm.effective_sample_size(values, filter_beyond_positive_pairs=True))
            assert abs(values.mean() - mean) < k * values.std() / np.sqrt(ess)


def assert_chains_agree(by_chain, exact, k=4.5, slack=0.0):
    """The mean over chains `[chains, D]` within k standard errors, and `slack` of the value, of the exact one."""
    standard_error = np.std(by_chain, axis=0, ddof=1) / np.sqrt(len(by_chain))
    assert np.all(np.abs(np.mean(by_chain, axis=0) - exact) < k * standard_error + slack * np.abs(exact))


@pytest.mark.parametrize('jit', [False, True])
@pytest.mark.parametrize('name', KERNELS)
def test_sample_chain(name, jit):
    @tf.function(autograph=False, jit_compile=jit)
    def run(start):
        return tfm.sample_chain(
            300, start, kernel=skewed_kernel(name), num_burnin_steps=30, trace_fn=rm.default_trace_fn, seed=(1, 2)
        )

    draws, trace = run(tf.constant(targets.skewed_draws(16, 3)))
    assert_skewed(draws)
    assert set(trace) >= {'target_log_prob', 'log_accept_ratio', 'is_accepted', 'diverging', 'status', 'energy'}
    assert trace['status'].shape == (300, 16)
    assert np.all(tfm.potential_scale_reduction(draws) < 1.05)
    np.testing.assert_allclose(trace['target_log_prob'], targets.skewed(draws), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize('name', KERNELS)
def test_experimental_sample_chain_fold_and_reductions(name):
    kernel = skewed_kernel(name)
    start = tf.constant(targets.skewed_draws(16, 3))
    draws = tf.function(
        lambda: tfxm.sample_chain(kernel, 200, start, trace_fn=lambda state, *_: state, seed=(1, 2)).trace,
        autograph=False,
    )()
    assert_skewed(draws)
    reducer = tfxm.ExpectationsReducer(lambda state, _: state)
    means = tf.function(
        lambda: tfxm.sample_fold(400, start, kernel=kernel, reducer=reducer, seed=(3, 4))[0], autograph=False
    )()
    exact = [scipy.stats.loggamma(shape) for shape in SHAPES]
    assert_chains_agree(means, [e.mean() for e in exact])
    reducer = tfxm.VarianceReducer()
    reduced = tfxm.WithReductions(kernel, reducer)
    variances = tf.function(
        lambda: reducer.finalize(
            tfxm.sample_chain(reduced, 400, start, trace_fn=None, seed=(5, 6)).final_kernel_results.reduction_results
        ),
        autograph=False,
    )()
    # Of the squares about each chain's own mean, which is biased by one effective draw; 400 of them are more than 40.
    assert_chains_agree(variances, [e.var() for e in exact], slack=1.0 / 40.0)


SIMPLE, DUAL = tfm.SimpleStepSizeAdaptation, tfm.DualAveragingStepSizeAdaptation


EVERYTHING = [(SIMPLE, 1, True), (SIMPLE, 32, False), (DUAL, 1, True), (DUAL, 32, True)]


@pytest.mark.parametrize(
    ('name', 'adaptation', 'num_chains', 'jit'),
    # Steps that are solved for take several times as long, and adaptation sees of a kernel what it accepts.
    [(name, *case) for name in KERNELS for case in (EVERYTHING[2:] if name == 'implicit' else EVERYTHING)],
)
def test_step_size_adaptation_reaches_its_target(name, adaptation, num_chains, jit):
    x, y = targets.logistic_data(40, 10)
    metric = rm.GaussNewtonMetric(lambda w: tf.linalg.matvec(tf.cast(x, w.dtype), w), 'bernoulli')
    metric = metric_of(name, metric, separable_metric(10))
    num_adaptation = 200 if num_chains > 1 else 5000
    # By default dual averaging aims at the chains' harmonic mean; here at what is measured.
    extra = (
        {'adaptation_rate': 0.1 / num_adaptation**0.5}
        if adaptation is SIMPLE
        else {'reduce_fn': tfp.math.reduce_logmeanexp}
    )
    kernel = adaptation(
        KERNELS[name](targets.logistic_regression(x, y), np.float64(0.3), 3, metric=metric),
        num_adaptation_steps=num_adaptation,
        target_accept_prob=np.float64(0.75),
        **extra,
    )

    @tf.function(autograph=False, jit_compile=jit)
    def run():
        return tfm.sample_chain(
            100 if num_chains > 1 else 5000,
            tf.zeros([num_chains, 10], tf.float64),
            kernel=kernel,
            num_burnin_steps=num_adaptation,
            trace_fn=lambda _, results: results.inner_results.log_accept_ratio,
            seed=(1, 2),
        )[1]

    # The simple rule counts how often a transition beats the target: with one chain it finds the median.
    average = np.median if adaptation is SIMPLE and num_chains == 1 else np.mean
    assert abs(average(np.exp(np.minimum(run(), 0.0))) - 0.75) < 0.05


@pytest.mark.parametrize(
    ('name', 'adaptation', 'num_chains'),
    [
        (name, *case)
        for name in KERNELS
        for case in ([(DUAL, 64)] if name == 'implicit' else [(DUAL, 1), (DUAL, 64), (SIMPLE, 64)])
    ],
)
def test_step_size_adaptation_on_the_funnel(name, adaptation, num_chains):
    num_draws = 100 if num_chains > 1 else 2000
    funnel_metric = rm.SeparableMetric(lambda v, x: [-0.8, -0.5 * v], blocks=[[0], list(range(1, 11))])
    metric = metric_of(name, rm.SoftAbsMetric(), funnel_metric)
    # In 100 steps of one per cent, the default, the simple rule cannot get from a far first step size to the last.
    extra = {'adaptation_rate': metric_of(name, 0.03, 0.01)} if adaptation is SIMPLE else {}
    kernel = adaptation(
        KERNELS[name](targets.funnel, np.float64(metric_of(name, 0.1, 0.8)), 5, metric=metric),
        num_draws,
        target_accept_prob=np.float64(0.8),
        **extra,
    )
    ratio = tf.function(
        lambda: tfm.sample_chain(
            num_draws,
            tf.constant(targets.funnel_draws(num_chains, 11)),
            kernel=kernel,
            num_burnin_steps=num_draws,
            trace_fn=lambda _, results: results.inner_results.log_accept_ratio,
            seed=(1, 2),
        )[1],
        autograph=False,
        jit_compile=True,
    )()
    assert abs(np.exp(np.minimum(ratio, 0.0)).mean() - 0.8) < 0.05


@pytest.mark.parametrize('name', KERNELS)
def test_a_constrained_model_and_a_pulled_back_metric(name):
    """x ~ Gamma(3, 1) through exp: SoftAbs follows the transformed target, a Fisher metric of x is pulled back."""
    target = lambda x: tf.reduce_sum(tfd.Gamma(np.float64(3.0), np.float64(1.0)).log_prob(x), axis=-1)
    fisher = rm.FisherMetric(lambda x: tf.linalg.diag(3.0 / tf.square(x)))
    # Two independent coordinates: one may set the other's scale, in the space in which the kernel moves.
    separable = rm.SeparableMetric(lambda a, b: [0.2 * tf.sin(b), -0.1 * a - 0.5], blocks=[[0], [1]])
    metrics = (separable,) if name == 'separable' else (rm.SoftAbsMetric(), rm.PullbackMetric(fisher, tfb.Exp()))
    for metric in metrics:
        kernel = tfm.TransformedTransitionKernel(KERNELS[name](target, np.float64(0.3), 5, metric=metric), tfb.Exp())
        draws = tf.function(
            lambda kernel=kernel: tfm.sample_chain(
                300, tf.ones([32, 2], tf.float64), kernel=kernel, num_burnin_steps=30, trace_fn=None, seed=(1, 2)
            ),
            autograph=False,
        )()
        ess = np.sum(tfm.effective_sample_size(draws, filter_beyond_positive_pairs=True))
        assert abs(np.mean(draws) - 3.0) < 4.5 * np.sqrt(3.0 / ess)
        assert abs(np.var(draws) - 3.0) < 4.5 * np.sqrt(36.0 / ess)


@pytest.mark.parametrize('name', KERNELS)
def test_replica_exchange_finds_both_modes_in_proportion(name):
    mixture = tfd.MixtureSameFamily(
        tfd.Categorical(probs=np.array([0.3, 0.7])),
        tfd.MultivariateNormalDiag(np.array([[-4.0, 0.0], [4.0, 0.0]]), np.ones([2, 2])),
    )
    separable = rm.SeparableMetric(lambda a, b: [0.1 * tf.sin(b), 0.1 * tf.tanh(a)], blocks=[[0], [1]])
    metric = metric_of(name, rm.SoftAbsMetric(1.0), separable)
    kernel = tfm.ReplicaExchangeMC(
        target_log_prob_fn=mixture.log_prob,
        inverse_temperatures=np.float64(0.4) ** tf.range(5, dtype=tf.float64),
        make_kernel_fn=lambda target: KERNELS[name](target, np.float64(0.3), 4, metric=metric),
    )
    draws = tf.function(
        lambda: tfm.sample_chain(
            400, tf.zeros([24, 2], tf.float64), kernel=kernel, num_burnin_steps=50, trace_fn=None, seed=(1, 2)
        ),
        autograph=False,
    )()
    right = (draws.numpy()[..., 0] > 0).astype(np.float64)
    standard_error = right.mean(axis=0).std() / np.sqrt(24)
    assert 0.0 < standard_error < 0.05
    assert abs(right.mean() - 0.7) < 4.0 * standard_error
    assert abs(np.abs(draws.numpy()[..., 0]).mean() - 4.0) < 0.1


@pytest.mark.parametrize('criterion', [tfxm.chees_rate_criterion, tfxm.snaper_criterion], ids=['chees', 'snaper'])
@pytest.mark.parametrize('name', KERNELS)
def test_trajectory_length_adaptation(name, criterion):
    kernel = skewed_kernel(name)
    extra = {}
    if criterion is tfxm.snaper_criterion:
        extra = {
            'criterion_fn': lambda previous_state, *args, **kwargs: tfxm.snaper_criterion(
                previous_state,
                *args,
                direction=tf.ones([3], tf.float64) / np.sqrt(3.0),
                state_mean=tf.zeros([3], tf.float64),
                state_mean_weight=0.0,
                **kwargs,
            )
        }
    else:
        extra = {'criterion_fn': criterion}
    kernel = tfxm.GradientBasedTrajectoryLengthAdaptation(
        kernel,
        num_adaptation_steps=60,
        initial_velocity_getter_fn=rm.initial_velocity_getter_fn,
        proposed_velocity_getter_fn=rm.proposed_velocity_getter_fn,
        **extra,
    )
    draws, lengths = tf.function(
        lambda: tfm.sample_chain(
            250,
            tf.constant(targets.skewed_draws(16, 3)),
            kernel=kernel,
            num_burnin_steps=60,
            trace_fn=lambda _, results: results.max_trajectory_length,
            seed=(1, 2),
        ),
        autograph=False,
    )()
    assert_skewed(draws)
    assert np.all(np.isfinite(lengths))
    assert lengths[-1] != 1.5


@pytest.mark.parametrize('name', KERNELS)
def test_sequential_monte_carlo(name):
    """A conjugate normal model: the posterior and the evidence are known."""
    observed = np.float64(1.2)
    prior = tfd.Sample(tfd.Normal(np.float64(0.0), np.float64(1.0)), 1)
    likelihood = lambda x: -2.0 * tf.square(observed - x[..., 0])
    _, state, _ = tfxm.sample_sequential_monte_carlo(
        prior.log_prob,
        likelihood,
        prior.sample(2000, seed=(1, 2)),
        make_kernel_fn=lambda target, *_: KERNELS[name](target, np.float64(0.3), 4, metric=rm.EuclideanMetric()),
        max_num_steps=6,
        seed=(3, 4),
    )
    np.testing.assert_allclose(np.mean(state), 4.0 / 5.0 * observed, atol=0.05)
    np.testing.assert_allclose(np.var(state), 1.0 / 5.0, atol=0.03)


@pytest.mark.parametrize('name', KERNELS)
def test_thinning(name):
    kernel = tfxm.ThinningKernel(skewed_kernel(name), num_steps_to_skip=1)
    draws = tf.function(
        lambda: tfm.sample_chain(150, tf.constant(targets.skewed_draws(16, 3)), kernel=kernel, trace_fn=None, seed=(1, 2)),
        autograph=False,
    )()
    assert_skewed(draws)
