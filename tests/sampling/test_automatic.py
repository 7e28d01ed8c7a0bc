"""The default kernel: what it learns, and runs that are interrupted, extended, saved and resumed."""

import warnings

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tests import targets
from tfp_rmhmc.sampling.automatic import AutomaticRun
from tfp_rmhmc.sampling.engine import Stretch, Tuning
from tfp_rmhmc.sampling.warmup import _best_length, _Jumps, _transitions_per_draw

tfd = tfp.distributions
# Short warm-ups and few draws: what they are warned of is right, and not what is tested here.
pytestmark = pytest.mark.filterwarnings(
    'ignore:R-hat', 'ignore:The energy fraction', 'ignore:The curvature', 'ignore:.*of the trajectories'
)
SHORT = {'num_burnin': 40, 'num_adaptation': 100}


def funnel(v, x):
    return targets.funnel(tf.concat([v[..., tf.newaxis], x], axis=-1))


def start(num_chains=4, dtype=np.float64):
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, size=[num_chains, *event]).astype(dtype) for event in ([], [5])]


def run(num_draws=60, **kwargs):
    return rm.sample_posterior(num_draws, funnel, initial_state=start(), seed=1, **(SHORT | kwargs))


def test_an_extended_run_is_the_longer_run():
    whole, short = run(120, jit_compile=False), run(45, jit_compile=False)
    assert not short.is_partial
    longer = short.extend(75)
    for x, y in zip(whole.draws, longer.draws, strict=True):
        np.testing.assert_array_equal(x, y)
    assert longer.trace['lp'].shape == (120, 4)
    chunked = run(120, chunk_size=7, jit_compile=False)
    np.testing.assert_allclose(chunked.draws[0], whole.draws[0], rtol=1e-9)


def test_an_extended_run_is_the_longer_run_up_to_rounding_where_xla_compiles():
    # XLA rounds the gradient at a piece's beginning in another way than the same one at a step's end.
    whole, longer = run(80, jit_compile=True), run(45, jit_compile=True).extend(35)
    assert whole.is_compiled
    assert longer.is_compiled
    np.testing.assert_allclose(longer.draws[0], whole.draws[0], rtol=1e-6)


def test_xla_takes_over_at_a_draw_that_does_not_depend_on_how_many_are_asked_for(monkeypatch):
    """From the 25th draw on, if 25 draws have the steps from which on XLA pays."""
    monkeypatch.setattr('tfp_rmhmc.sampling.automatic._USUAL_DRAWS', 0)
    made = []
    engine_of_run = AutomaticRun._engine

    def counted(self, structure, size, is_xla):
        made.append((self.num_draws, is_xla))
        return engine_of_run(self, structure, size, is_xla)

    monkeypatch.setattr(AutomaticRun, '_engine', counted)
    fixed = {'num_burnin': 0, 'num_adaptation': 0, 'step_size': 0.1, 'trajectory_length': 1.0}
    short = run(10, **fixed)
    steps = short.trace['n_steps'].mean()
    monkeypatch.setattr('tfp_rmhmc.sampling.automatic._MIN_STEPS_FOR_XLA', 25 * 10.0)
    assert 5 < steps < 15
    for num_draws in (30, 60):
        made.clear()
        assert run(num_draws, **fixed).is_compiled
        drawing = made[-2:]
        assert drawing == [(0, False), (25, True)]


def test_a_run_that_was_killed_resumes_to_the_same_draws_and_may_be_longer(tmp_path, monkeypatch):
    whole = run(150)
    draw_on = AutomaticRun._stretch

    def killed(self, *arguments):
        if self.num_draws >= 50:
            raise RuntimeError('killed')
        return draw_on(self, *arguments)

    monkeypatch.setattr(AutomaticRun, '_stretch', killed)
    with pytest.raises(RuntimeError, match='killed'):
        run(100, checkpoint_dir=tmp_path)
    monkeypatch.undo()
    warm_up = AutomaticRun.warm_up
    calls = []
    monkeypatch.setattr('tfp_rmhmc.sampling.automatic.warm_up', lambda *a: calls.append(a))
    resumed = run(150, checkpoint_dir=tmp_path)
    assert not calls, 'the warm-up was made again'
    assert AutomaticRun.warm_up is warm_up
    for x, y in zip(whole.draws, resumed.draws, strict=True):
        np.testing.assert_array_equal(x, y)
    assert str(resumed.learned_scales()) == str(whole.learned_scales())
    with pytest.raises(ValueError, match='`checkpoint_dir` belongs to another'):
        run(150, checkpoint_dir=tmp_path, num_adaptation=120)


def test_control_c_returns_what_has_been_drawn(monkeypatch):
    draw_on = AutomaticRun._stretch

    def interrupted(self, *arguments):
        if self.num_draws >= 50:
            raise KeyboardInterrupt
        return draw_on(self, *arguments)

    monkeypatch.setattr(AutomaticRun, '_stretch', interrupted)
    result = run(200)
    assert result.is_partial
    assert result.draws[0].shape == (50, 4)
    monkeypatch.undo()
    np.testing.assert_array_equal(result.extend(50).draws[0], run(100).draws[0])


def test_enough_is_enough():
    result = run(5000, target_ess=60.0)
    assert 50 <= len(result.draws[0]) < 5000
    assert min(np.min(x) for x in result.ess().values()) >= 60.0
    with pytest.raises(ValueError, match='`target_ess`.*-1'):
        run(10, target_ess=-1.0)
    with pytest.raises(ValueError, match='`trajectory_length`.*-1'):
        run(10, trajectory_length=-1.0)


def test_results_are_saved_to_one_file(tmp_path):
    model = tfd.JointDistributionNamed({'a': tfd.Normal(0.0, 1.0), 'b': lambda a: tfd.Normal(a, 2.0)})
    for result in (run(30), rm.sample_posterior(30, model, seed=1, **SHORT)):
        result.save(tmp_path / 'draws.npz')
        loaded = rm.PosteriorDraws.load(tmp_path / 'draws.npz')
        assert loaded.names == result.names
        tf.nest.map_structure(np.testing.assert_array_equal, loaded.draws, result.draws)
        np.testing.assert_array_equal(loaded.trace['energy'], result.trace['energy'])
        assert str(loaded.learned_scales()) == str(result.learned_scales())
        assert (loaded.gradients, loaded.choice) == (result.gradients, result.choice)
        with pytest.raises(ValueError, match='extended'):
            loaded.extend(10)
    (tmp_path / 'bad.npz').write_bytes(b'nothing')
    with pytest.raises(ValueError, match='`path` must be a file that `save` wrote.*bad.npz'):
        rm.PosteriorDraws.load(tmp_path / 'bad.npz')


def test_other_kernels_have_nothing_learned_and_say_so():
    result = run(20, kernel='hmc', num_adaptation=20)
    with pytest.raises(ValueError, match="kernel 'hmc'"):
        result.learned_scales()
    assert run(20, metric=rm.EuclideanMetric(), num_adaptation=20).choice == "kernel 'explicit', EuclideanMetric"


@pytest.mark.parametrize('num_chains', [1, 50])
@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_from_one_chain_to_many_in_both_dtypes(num_chains, dtype):
    result = rm.sample_posterior(40, funnel, initial_state=start(num_chains, dtype), num_chains=num_chains, seed=1, **SHORT)
    assert result.draws[1].shape == (40, num_chains, 5)
    assert result.draws[1].dtype == dtype
    assert np.all(np.isfinite(result.draws[1]))
    assert np.mean(result.trace['acceptance_rate']) > 0.5


def test_without_warm_up_the_given_step_and_length_are_taken():
    result = run(30, num_burnin=0, num_adaptation=0, step_size=0.05, trajectory_length=0.2)
    np.testing.assert_allclose(result.trace['step_size'], 0.05, rtol=1e-6)
    assert 2 <= result.trace['n_steps'].min() <= result.trace['n_steps'].max() <= 6


def test_a_target_that_xla_cannot_compile_is_said_to_run_in_a_graph(monkeypatch):
    def log_prob(q):
        return targets.gaussian(q) + 0.0 * tf.cast(tf.strings.length(tf.strings.as_string(q[..., 0])) * 0, q.dtype)

    monkeypatch.setattr('tfp_rmhmc.sampling.automatic._MIN_STEPS_FOR_XLA', 1)
    arguments = {'initial_state': np.zeros((4, 2)), 'seed': 1, **SHORT}
    with pytest.warns(UserWarning, match='XLA could not compile the target, so it ran in a graph'):
        result = rm.sample_posterior(20, log_prob, **arguments)
    assert not result.is_compiled
    assert rm.sample_posterior(20, targets.gaussian, **arguments).is_compiled


def test_steps_are_shorter_where_the_metric_cannot_follow():
    """A banana, and a Gaussian beside it; an acceptance that is asked for is what is aimed at."""
    start = np.random.default_rng(0).uniform(-2.0, 2.0, size=(8, 2))

    def acceptance(log_prob, **arguments):
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            result = rm.sample_posterior(200, log_prob, initial_state=start, num_chains=8, seed=1, **arguments)
        return result.trace['acceptance_rate'].mean(), result.scales.residual_names is not None

    rate, has_residual = acceptance(targets.banana)
    assert has_residual
    assert 0.95 < rate < 0.99
    rate, has_residual = acceptance(targets.gaussian)
    assert not has_residual
    assert 0.8 < rate < 0.9
    rate, _ = acceptance(targets.banana, target_accept_prob=0.8)
    assert 0.74 < rate < 0.86


def test_the_ladder_takes_the_best_length(rng):
    """Jumps of a slow coordinate grow with the length up to a rung, then only the price does."""
    multiples, n = np.array([0.5, 1.0, 2.0]), 3000
    rungs = np.arange(n) % 3
    rho = np.array([0.95, 0.2, 0.15])[rungs]
    before = rng.standard_normal((n, 1, 1))
    after = rho[:, None, None] * before + np.sqrt(1 - rho**2)[:, None, None] * rng.standard_normal((n, 1, 1))
    lengths = 8.0 * multiples[rungs]
    assert _best_length([_Jumps(before, after, lengths)], 0.1, 1.0, 100.0) == pytest.approx(8.0)
    stuck = np.where((rungs == 1)[:, None, None], before, after)  # a rung that is always rejected
    assert _best_length([_Jumps(before, stuck, lengths)], 0.1, 1.0, 100.0) != pytest.approx(8.0)
    assert _best_length([_Jumps(before, after, lengths)], 0.1, 10.0, 100.0) == 10.0


def test_windows_are_pooled_and_what_is_far_is_left_out(rng):
    """A parabola between the rungs; lengths that were tried far away have no say."""

    def piece(lengths, worth):
        lengths = np.tile(lengths, 2000)
        rho = (1.0 - worth(lengths)) / (1.0 + worth(lengths))
        before = rng.standard_normal((len(lengths), 1, 1))
        after = rho[:, None, None] * before + np.sqrt(1 - rho**2)[:, None, None] * rng.standard_normal(before.shape)
        return _Jumps(before, after, lengths)

    # Efficiency, worth by length, has its top at 11.
    worth = lambda lengths: 0.6 * (lengths / 11.0) * np.exp(-np.square(np.log(lengths / 11.0)))
    far = piece(np.array([64.0, 128.0]), lambda lengths: np.full(len(lengths), 0.99))
    pieces = [far, piece(np.array([5.0, 10.0, 20.0]), worth), piece(8.0 * 2.0 ** np.array([-1, -0.5, 0, 0.5, 1]), worth)]
    assert _best_length(pieces, 1e-3, 1.0, 100.0) == pytest.approx(11.0, rel=0.15)


def test_draws_of_a_slow_coordinate_are_several_transitions_apart(rng):
    def chain(rho):
        noise = rng.standard_normal((400, 4, 2))
        for t in range(1, len(noise)):
            noise[t] = rho * noise[t - 1] + np.sqrt(1.0 - rho**2) * noise[t]
        return noise

    def needed(states):
        return _transitions_per_draw(_Jumps(states[:-1], states[1:], np.ones(len(states) - 1)))

    assert needed(chain(0.0)) == 1
    assert needed(chain(0.3)) == 1  # 1/2
    assert 3 <= needed(np.concatenate([chain(0.8), chain(0.0)], axis=-1)) <= 5  # a draw is worth 1/9
    assert needed(chain(0.99)) == 10
    # What changes slowly under what changes fast: by neighbouring draws alone it would be worth a half.
    assert needed(chain(0.97) + 2.0 * chain(0.0)) >= 2
    assert needed(np.zeros((400, 4, 2))) == 1  # nothing moves, which is not for this to mend


def test_several_transitions_as_one_cost_what_they_cost_together():
    trace = {
        'n_steps': np.array([[1], [2], [3], [4]]),
        'diverging': np.array([[False], [True], [False], [False]]),
        'lp': np.array([[1.0], [2.0], [3.0], [4.0]]),
    }
    states = np.arange(4.0)[:, None]
    thinned = Stretch([states], states, trace, Tuning.fixed(0.1)).thinned(2)
    np.testing.assert_array_equal(thinned.states[0][:, 0], [1.0, 3.0])
    np.testing.assert_array_equal(thinned.trace['n_steps'][:, 0], [3, 7])
    np.testing.assert_array_equal(thinned.trace['diverging'][:, 0], [True, False])
    np.testing.assert_array_equal(thinned.trace['lp'][:, 0], [2.0, 4.0])


@pytest.mark.statistical
def test_what_was_learned_is_told_by_name_and_drawn():
    import matplotlib

    matplotlib.use('Agg')
    result = rm.sample_posterior(200, funnel, initial_state=start(), seed=1)
    scales = result.learned_scales()
    assert set(scales.exponents) == {(f'x1[{i}]', 'x0') for i in range(5)}
    assert str(scales).startswith('x0 sets the scale of x1[0..4] (-0.')
    assert 'x0 sets the scale' in result.choice
    axes = result.plot_learned_scales()
    assert [label.get_text() for label in axes.get_xticklabels()] == ['x0']
    constant = rm.sample_posterior(50, targets.gaussian, initial_state=np.zeros((4, 3)), seed=1, **SHORT)
    assert str(constant.learned_scales()) == 'the scales are constant'
    constant.plot_learned_scales()


@pytest.mark.statistical
@pytest.mark.parametrize('seed', [1, 2, 3, 4])
def test_the_funnel_as_a_flat_vector_is_sampled_right(seed):
    """v is N(0, 9), and exp(v) |x|^2 chi-square, in means and deviations within four standard errors."""
    initial = np.random.default_rng(seed).uniform(-2, 2, size=(4, 11))
    result = rm.sample_posterior(1000, targets.funnel, initial_state=initial, seed=seed)
    draws, ess = result.draws.numpy(), result.ess()['x']
    v = draws[..., 0]
    print(result.choice, ess.min(), np.max(result.r_hat()['x']), 1e3 * ess.min() / sum(result.gradients.values()))
    assert np.max(result.r_hat()['x']) < 1.02
    assert ess.min() > 400
    assert 1e3 * ess.min() / sum(result.gradients.values()) > 4.0
    assert abs(v.mean()) < 4.0 * 3.0 / np.sqrt(ess[0])
    assert abs(v.std() - 3.0) < 4.0 * 3.0 / np.sqrt(2.0 * ess[0])
    radius = np.exp(v) * np.sum(draws[..., 1:] ** 2, axis=-1)
    assert abs(radius.mean() - 10.0) < 4.0 * np.sqrt(20.0 / ess.min())


def ranks_of_the_truth(prior_scale, num_simulations=240, num_ranks=7):
    """Of log tau and theta_0 among thinned draws of their posterior, given data that they made: `[simulations, 2]`.

    Every chain has data of its own, so that all simulations are one run.
    """
    rng = np.random.default_rng(11)
    log_tau = rng.normal(0.0, 1.0, size=(num_simulations, 1))
    theta = np.exp(log_tau) * rng.standard_normal((num_simulations, 5))
    y = theta + rng.standard_normal((num_simulations, 5))

    def log_prob(q):
        log_tau, theta = q[..., 0], q[..., 1:]
        prior = -0.5 * tf.square(log_tau / prior_scale) - 5.0 * log_tau
        centred = tf.square(theta * tf.exp(-log_tau)[..., tf.newaxis]) + tf.square(theta - y)
        return prior - 0.5 * tf.reduce_sum(centred, axis=-1)

    initial = rng.uniform(-2, 2, size=(num_simulations, 6))
    result = rm.sample_posterior(60 * num_ranks, log_prob, initial_state=initial, num_chains=num_simulations, seed=3)
    kept = result.draws.numpy()[59::60]
    print(result.choice)
    return np.stack([np.sum(kept[..., 0] < log_tau[:, 0], axis=0), np.sum(kept[..., 1] < theta[:, 0], axis=0)], axis=1)


@pytest.mark.statistical
def test_simulation_based_calibration():
    """Ranks of the truth are uniform on 0 ... 7 under the right prior, and not under one that is too narrow."""
    p_values = {}
    for name, scale in [('right', 1.0), ('narrow', 0.4)]:
        counts = [np.bincount(column, minlength=8) for column in ranks_of_the_truth(scale).T]
        p_values[name] = [scipy.stats.chisquare(count).pvalue for count in counts]
    print(p_values)
    assert min(p_values['right']) > 1e-3
    assert p_values['narrow'][0] < 1e-6
