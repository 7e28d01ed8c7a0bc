"""What a model says of scales before there are draws: who sets whose, and the first precisions."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tests.metric.test_learning import scores_of
from tfp_rmhmc.metric import PriorScales, SeparableMetric, fit_metric, scale_hint
from tfp_rmhmc.sampling.automatic import AutomaticRun
from tfp_rmhmc.sampling.problem import problem_of

tfd = tfp.distributions
Root = tfd.JointDistributionCoroutineAutoBatched.Root


def slopes(num_groups=6):
    """Two levels: log tau sets the scale of b, and log s that of the observations."""

    @tfd.JointDistributionCoroutineAutoBatched
    def model():
        tau = yield Root(tfd.HalfNormal(np.float64(1.0), name='tau'))
        s = yield Root(tfd.HalfNormal(np.float64(1.0), name='s'))
        b = yield tfd.Sample(tfd.Normal(np.float64(0.0), tau), num_groups, name='b')
        yield tfd.Normal(b, s, name='y')

    return model, {'y': np.linspace(-1.0, 1.0, num_groups)}


def test_setters_are_those_of_the_model_s_distributions():
    model, pins = slopes(3)
    metric = SeparableMetric.from_prior(model, **pins)
    state = [np.zeros([]), np.zeros([]), np.zeros(3)]  # log tau, log s, b
    found = metric.setters_at(state)
    assert found == [(), (), (0, 1), (0, 1), (0, 1)]


def test_the_hint_s_precisions_are_the_metric_s():
    model, pins = slopes(3)
    problem = problem_of(model, 5, None, tf.constant([1, 2]), pins)
    hint = scale_hint(problem.model_metric(), problem.start)
    by_parts = problem.model_metric()._log_scale_fn(*problem.start)
    expected = [
        np.mean(-2.0 * np.broadcast_to(x, part.shape), axis=0) for x, part in zip(by_parts, problem.start, strict=True)
    ]
    # Scales of a part that depend on that part are taken at its reference, which of a prior's do not.
    np.testing.assert_allclose(hint.log_precision, np.concatenate([np.ravel(x) for x in expected]), rtol=1e-6)


def test_a_structure_that_few_draws_do_not_show_is_taken_from_the_hint_and_a_wrong_one_is_not():
    setters = [()] + [(0,)] * 20

    def log_prob(q):  # scales that vary by half: no coordinate alone shows it in 120 draws
        v, x = q[..., 0], q[..., 1:]
        return -2.0 * v * v + 10.0 * v - 0.5 * tf.exp(v) * tf.reduce_sum(tf.square(x), axis=-1)

    rng = np.random.default_rng(0)
    v = 0.5 * rng.standard_normal((120, 1))
    draws = np.concatenate([v, np.exp(-0.5 * v) * rng.standard_normal((120, 20))], axis=1)
    draws, scores = (x.reshape(30, 4, 21) for x in (draws, scores_of(log_prob, draws)))
    assert fit_metric(draws, scores, hint=setters).exponents.keys() == {(i, 0) for i in range(1, 21)}
    assert len(fit_metric(draws, scores).exponents) < 10
    gaussian = rng.standard_normal((60, 4, 21))
    assert fit_metric(gaussian, -gaussian, hint=setters).exponents == {}


def test_setters_are_checked():
    draws = np.random.default_rng(0).standard_normal((30, 3))
    for wrong, error in [([[0]], ValueError), ([[0], [], []], ValueError), ([[3], [], []], ValueError), (1.0, TypeError)]:
        with pytest.raises(error, match='`setters` must be None or, for each of 3 coordinates'):
            SeparableMetric.learn(draws, -draws, setters=wrong)
    with pytest.raises(TypeError, match='`setters`'):
        SeparableMetric.learn(draws, -draws, setters=[[0.5], [], []])


@pytest.mark.filterwarnings('ignore:R-hat', 'ignore:The energy fraction', 'ignore:.*of the trajectories')
def test_the_first_metric_of_a_run_is_the_model_s(monkeypatch):
    model, pins = slopes()
    runs = []
    warm_up = AutomaticRun._warm_up
    monkeypatch.setattr(AutomaticRun, '_warm_up', lambda self, *args: [runs.append(self), warm_up(self, *args)])
    rm.sample_posterior(20, model, num_burnin=0, num_adaptation=0, step_size=0.3, trajectory_length=2.0, seed=3, **pins)
    run = runs[0]
    expected = scale_hint(run.problem.model_metric(), run.problem.start).log_precision
    np.testing.assert_allclose(run.tuned.fit.parameters[0]['c'], expected)
    assert np.ptp(expected) > 0.5


@pytest.mark.filterwarnings('ignore:.*of the trajectories diverged')  # after a warm-up of thirty
def test_a_model_without_moments_runs_all_the_same(monkeypatch):
    monkeypatch.setattr(PriorScales, '__call__', lambda *parts: 1 / 0)
    model, pins = slopes()
    with pytest.warns(UserWarning, match='R-hat'):  # of so short a run
        result = rm.sample_posterior(20, model, num_burnin=10, num_adaptation=20, seed=3, **pins)
    assert np.all(np.isfinite(result.trace['lp']))
