"""Which program runs a kernel, and that the result says so."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import tfp_rmhmc as rm
from tests import targets
from tfp_rmhmc.sampling.by_name import NamedRun
from tfp_rmhmc.sampling.compilation import Compiler
from tfp_rmhmc.sampling.runner import Window


def regression(num, dimension):
    """A log density that goes through `num` observations."""
    x = np.random.default_rng(0).standard_normal((dimension, num))
    return lambda w: -tf.reduce_sum(tf.nn.softplus(tf.matmul(w, x)), axis=-1) - 0.5 * tf.reduce_sum(w * w, axis=-1)


def states(num_chains, dimension):
    return tf.constant(0.1 * np.random.default_rng(1).standard_normal((num_chains, dimension)))


@pytest.mark.parametrize(
    ('metric', 'num', 'dimension', 'num_chains', 'expected'),
    [
        (rm.SoftAbsMetric(), 50, 5, 1, True),
        (rm.SoftAbsMetric(), 200, 11, 512, True),
        (rm.SoftAbsMetric(), 50, 25, 8, False),  # LAPACK's decompositions
        (rm.SoftAbsMetric(), 2000, 25, 64, True),  # the data weigh more
        (rm.HessianMetric(), 50, 25, 8, True),  # Cholesky's cost less
        (rm.HessianMetric(), 50, 100, 64, False),
        (rm.HessianMetric(), 50, 5, 20_000, True),  # as many chains as one likes
        (rm.MongeMetric(), 50, 100, 64, True),
        (None, 50, 100, 64, True),
    ],
)
def test_the_choice(metric, num, dimension, num_chains, expected):
    assert rm.prefers_xla(regression(num, dimension), states(num_chains, dimension), metric) is expected


def test_a_known_structure_is_checked_and_counts():
    funnel = tf.constant(targets.funnel_draws(8, 51))
    arrowhead = rm.SoftAbsMetric(structure='arrowhead')
    assert rm.prefers_xla(targets.funnel, funnel, arrowhead)
    assert not rm.prefers_xla(targets.funnel, funnel, rm.SoftAbsMetric())  # unknown: general matrices of 51 rows
    tilted = lambda q: targets.funnel(q) + 0.1 * q[..., 1] * q[..., 2] ** 2  # two entries of the shaft differ
    assert not rm.prefers_xla(tilted, funnel, arrowhead)


def test_parts_and_a_chain_without_a_batch():
    log_prob = lambda a, b: targets.skewed(a) + targets.skewed(b)
    assert rm.prefers_xla(log_prob, [states(4, 2), states(4, 3)], rm.SoftAbsMetric())
    assert rm.prefers_xla(targets.skewed, states(1, 5)[0], rm.SoftAbsMetric())


@pytest.mark.filterwarnings('ignore:R-hat', 'ignore:The energy fraction', 'ignore:.*of the trajectories')
def test_the_result_says_which_it_was():
    settings = {
        'kernel': 'hmc',
        'num_burnin': 0,
        'num_adaptation': 4,
        'trajectory_length': 0.5,
        'progress': False,
        'seed': 1,
    }
    settings['initial_state'] = states(4, 2)
    assert rm.sample_posterior(4, targets.skewed, **settings).is_compiled
    assert not rm.sample_posterior(4, targets.skewed, jit_compile=False, **settings).is_compiled


@pytest.mark.filterwarnings('ignore:R-hat', 'ignore:The energy fraction', 'ignore:.*of the trajectories')
def test_what_xla_cannot_compile_is_said_and_tried_once(tmp_path, monkeypatch):
    # XLA has no strings.
    with_strings = lambda q: targets.skewed(q) + 0.0 * tf.cast(tf.strings.length(tf.as_string(q[:, 0])), q.dtype)
    programs = []
    original = Window._program

    def counted(self, size, is_xla, arguments):
        programs.append(is_xla)
        return original(self, size, is_xla, arguments)

    monkeypatch.setattr(Window, '_program', counted)
    settings = {'kernel': 'hmc', 'num_burnin': 2, 'num_adaptation': 4, 'trajectory_length': 0.5, 'seed': 1}
    settings |= {'initial_state': states(4, 2), 'checkpoint_dir': tmp_path}
    sentence = 'XLA could not compile the target, so it ran in a graph: '
    with pytest.warns(UserWarning, match=f'{sentence}.*StringLength|{sentence}.*AsString'):
        result = rm.sample_posterior(4, with_strings, **settings)
    assert not result.is_compiled
    assert len(result.remarks) == 1
    assert programs.count(True) == 1
    longer = result.extend(4)
    assert longer.remarks == result.remarks
    with pytest.warns(UserWarning, match=sentence):
        resumed = rm.sample_posterior(12, with_strings, **settings)
    assert not resumed.is_compiled
    assert programs.count(True) == 1
    with pytest.raises(Exception, match='StringLength|AsString'):
        rm.sample_posterior(4, with_strings, jit_compile=True, **(settings | {'checkpoint_dir': None}))


def singular_far_out(q):
    """A log density with a linear system whose matrix vanishes where |q_0| > 2, which stops a graph."""
    matrix = tf.eye(2, dtype=q.dtype) * tf.nn.relu(2.0 - tf.abs(q[..., 0]))[..., None, None]
    solved = tf.linalg.solve(matrix, tf.ones_like(matrix))
    return -0.5 * tf.reduce_sum(tf.square(q), axis=-1) - 0.01 * tf.reduce_sum(tf.square(solved), axis=[-2, -1])


@pytest.mark.filterwarnings('ignore:R-hat', 'ignore:The energy fraction', 'ignore:.*of the trajectories')
@pytest.mark.parametrize('kernel', ['auto', 'hmc'])
def test_a_singular_matrix_of_one_chain_does_not_stop_the_others(kernel, tmp_path):
    start = np.random.default_rng(0).uniform(-1.5, 1.5, size=(4, 2))
    settings = {'kernel': kernel, 'initial_state': start, 'seed': 1, 'num_burnin': 50, 'num_adaptation': 100}
    sentence = r'A matrix of the target was singular.*\(Input matrix is not invertible\).*so XLA compiled the run\.'
    with pytest.warns(UserWarning, match=sentence):
        result = rm.sample_posterior(100, singular_far_out, checkpoint_dir=tmp_path, **settings)
    assert result.is_compiled
    assert np.isfinite(result.draws).all()
    assert np.all(np.abs(result.draws[..., 0]) < 2.0)
    assert np.all(np.std(result.draws, axis=0) > 0.3)  # each chain has moved
    with pytest.warns(UserWarning, match=sentence):
        longer = rm.sample_posterior(110, singular_far_out, checkpoint_dir=tmp_path, **settings)
    np.testing.assert_array_equal(longer.draws[:100], result.draws)
    with pytest.raises(RuntimeError, match='was singular.*XLA, which does not stop, was ruled out'):
        rm.sample_posterior(100, singular_far_out, jit_compile=False, **settings)
    with_strings = lambda q: singular_far_out(q) + 0.0 * tf.cast(tf.strings.length(tf.as_string(q[:, 0])), q.dtype)
    with pytest.raises(RuntimeError, match='was singular.*XLA, which does not stop, failed'):
        rm.sample_posterior(100, with_strings, **settings)
    with pytest.raises(ValueError, match='no value or gradient at the start of one of the chains: Input matrix is not'):
        rm.sample_posterior(100, singular_far_out, **(settings | {'initial_state': 5.0 * np.ones((4, 2))}))


def test_the_progress_line_says_it():
    compiler = Compiler(None)
    compiler.prefer(True)

    def program(is_xla):
        if is_xla:
            raise ValueError('no such operation\nand more')
        return 1

    assert compiler.call(program) == 1
    assert compiler.failure == 'XLA could not compile the target, so it ran in a graph: no such operation'
    compiler.prefer(True)
    assert not compiler.is_xla
    run = NamedRun.__new__(NamedRun)
    run.compiler = compiler
    shown = []
    run._with_failure(lambda phase, trace: shown.append(phase))('sampling', {})
    assert shown == [f'sampling ({compiler.failure})']
    with pytest.raises(ZeroDivisionError):
        Compiler(True).call(lambda is_xla: 1 // 0)


_CHUNKS = """
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
import tfp_rmhmc as rm
from tfp_rmhmc.experiment.funnel import funnel_log_prob
from tfp_rmhmc.metric import ScaleStructure
from tfp_rmhmc.sampling.compilation import Compiler
from tfp_rmhmc.sampling.engine import Engine, Tuning
from tfp_rmhmc.sampling.runner import Window

kernel = rm.ExplicitRiemannianHMC(funnel_log_prob, np.float64(0.1), 2, metric=rm.SoftAbsMetric())
window = Window(kernel, [tf.ones([2, 3], tf.float64)], tf.constant([0, 1]), Compiler(True))
for _ in range(3):
    window.run(2, 2)


@tf.function(autograph=False, jit_compile=True)
def one_transition(state, seed):
    return kernel.one_step(state, kernel.bootstrap_results(state), seed=seed)[0]


for seed in range(3):
    one_transition(tf.ones([2, 3], tf.float64), tf.constant([0, seed]))


@tfp.distributions.JointDistributionCoroutineAutoBatched
def model():
    v = yield tfp.distributions.Normal(np.float64(0.0), 3.0, name='v')
    yield tfp.distributions.Sample(tfp.distributions.Normal(np.float64(0.0), tf.exp(-0.5 * v)), 2, name='x')


for target in (model.log_prob, tf.function(model.log_prob)):
    engine = Engine(lambda v, x: target(v=v, x=x), ScaleStructure.constant(3), 2, True)
    for i in (1.0, 2.0, 3.0):
        parameters = [{'c': i * np.ones(3)}]
        start, tuning = [np.full([2], i), np.full([2, 2], i)], Tuning.begin(0.1 * i, 0.8)
        engine.run(start, parameters, tuning, np.array([i, i]), int(i), tf.constant([0, 1]), True, 10)
"""


def test_xla_compiles_a_program_once_for_all_chunks_and_seeds(tmp_path):
    # XLA writes down each program that it compiles. What it takes for a constant it compiles anew for each value.
    environment = os.environ | {'XLA_FLAGS': f'--xla_dump_to={tmp_path}', 'PYTHONPATH': os.getcwd()}
    subprocess.run([sys.executable, '-c', _CHUNKS], env=environment, check=True, capture_output=True, timeout=300)
    for program, expected in (('transitions', 1), ('one_transition', 1), ('_transitions', 2)):
        compiled = [path.name for path in tmp_path.glob(f'*inference_{program}_*before_optimizations.txt')]
        assert len(compiled) == expected, compiled


@pytest.mark.filterwarnings('ignore:R-hat', 'ignore:The energy fraction', 'ignore:.*of the trajectories')
def test_a_long_loop_over_data_is_compiled_and_its_draws_can_be_saved(tmp_path):
    noise = tf.constant(np.random.default_rng(0).standard_normal(60))

    def log_prob(q):  # an autoregression
        path = tf.scan(lambda x, e: q[..., 0] * x + e, noise, tf.zeros_like(q[..., 0]))
        return -0.5 * tf.reduce_sum(tf.square(path), axis=0) - tf.reduce_sum(tf.square(q), axis=-1)

    options = {'num_burnin': 10, 'num_adaptation': 20, 'progress': False, 'seed': 1}
    result = rm.sample_posterior(4, log_prob, initial_state=states(4, 2), **options)
    assert result.is_compiled is True
    result.save(tmp_path / 'draws.npz')
    assert rm.PosteriorDraws.load(tmp_path / 'draws.npz').is_compiled is True
