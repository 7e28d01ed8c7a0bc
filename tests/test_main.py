"""The command: every experiment at a small size, errors in one sentence, and what Ctrl-C leaves."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tfp_rmhmc.__main__ import main
from tfp_rmhmc.experiment import funnel, run

SMALL = ['--draws', '6', '--chains', '2', '--no-jit']
FIGURES = {  # and options that make it small
    'funnel': (['funnel_diagnostics.png', 'funnel_draws.png', 'funnel_marginal.png'], SMALL),
    'logistic': (['logistic_paths.png'], ['--draws', '6', '--no-jit']),
    'prior': (['prior.png'], SMALL),
    'omega': (['omega.png'], []),
    'digits': (['digits.png'], ['--draws', '6']),
}


@pytest.mark.filterwarnings('ignore::RuntimeWarning', 'ignore::UserWarning')
@pytest.mark.parametrize('experiment', FIGURES)
def test_an_experiment_prints_a_table_and_saves_figures(experiment, tmp_path, capsys):
    figures, options = FIGURES[experiment]
    assert main([experiment, *options, '--out', str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert 'figure' in printed
    assert sorted(path.name for path in pathlib.Path(tmp_path).iterdir()) == figures
    if experiment == 'funnel':
        lines = printed.splitlines()
        for name in ('NUTS', 'HMC, hand-tuned', 'implicit RMHMC', 'explicit RMHMC', 'no-U-turn RMHMC', 'default'):
            assert sum(line.startswith(name) for line in lines) >= 1, name
        for column in ('KL of v', 'wall time', 'acceptance', ' N ', ' L ', 'step size', 'ESS/s', 'max |z|'):
            assert column in printed
        assert 'the default made' in printed
        assert 'For each effective sample, explicit RMHMC was' in printed


def test_float32_and_another_metric(tmp_path, capsys):
    arguments = [
        'funnel',
        *SMALL,
        '--kernel',
        'explicit',
        '--dtype',
        'float32',
        '--metric',
        'softabs-1',
        '--out',
        str(tmp_path),
    ]
    assert main(arguments) == 0
    assert 'float32' in capsys.readouterr().out


@pytest.mark.parametrize(
    ('arguments', 'word'),
    [
        (['banana'], 'banana'),
        (['--draws', '0'], '--draws'),
        (['--chains', 'many'], '--chains'),
        (['--kernel', 'gibbs'], 'gibbs'),
        (['--dtype', 'float16'], 'float16'),
        (['--nonsense'], '--nonsense'),
        (['omega', '--chains', '2'], '--chains (got 2)'),
        (['digits', '--no-jit'], '--jit (got False)'),
    ],
)
def test_errors_are_one_sentence_and_exit_code_2(arguments, word, capsys):
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    error = capsys.readouterr().err
    assert word in error
    assert error.count('\n') == 1


def test_an_output_directory_that_cannot_be_made(tmp_path, capsys):
    (tmp_path / 'file').write_text('')
    assert main(['funnel', *SMALL, '--kernel', 'hmc', '--out', str(tmp_path / 'file')]) == 2
    printed = capsys.readouterr()
    assert printed.err.count('\n') == 1
    assert '--out' in printed.err
    assert not printed.out  # said before anything was sampled


def test_ctrl_c_leaves_the_table_so_far(monkeypatch, tmp_path, capsys):
    chunks = []

    def interrupted(self, count, size):
        if len(chunks) > 25:
            raise KeyboardInterrupt
        chunks.append(original(self, count, size))
        return chunks[-1]

    original = run.Window.run
    monkeypatch.setattr(run.Window, 'run', interrupted)
    assert main(['funnel', '--draws', '20', '--chains', '2', '--no-jit', '--out', str(tmp_path)]) == 130
    printed = capsys.readouterr().out
    assert 'NUTS' in printed
    assert '(interrupted)' in printed
    assert 'explicit RMHMC ' not in printed


def test_the_divergence_of_the_marginal():
    assert funnel.kl_of_v(3.0 * np.random.default_rng(0).standard_normal(400_000)) < 1e-4
    # Closed form: a variance of 9/4 and a mean of 1.
    v = 1.0 + 1.5 * np.array([-1.0, 1.0])
    assert funnel.kl_of_v(v) == pytest.approx(0.5 * (4.0 + 4.0 / 9.0 - 1.0 - np.log(4.0)))


def test_the_bias_of_the_marginal_sees_a_neck_that_was_not_entered():
    """Draws that stop at v = 3.5, with the mean and variance of those that do not."""
    whole = 3.0 * np.random.default_rng(0).standard_normal(40_000)
    assert funnel.bias_of_v(whole, len(whole)) < funnel.BIASED
    cut = whole[whole < 3.5]
    cut = 3.0 * (cut - cut.mean()) / cut.std()
    assert funnel.kl_of_v(cut) < 1e-4
    assert funnel.bias_of_v(cut, 500.0) > funnel.BIASED
    # By hand: the median is where nothing is below it, by half, in units of half over the root of four.
    assert funnel.bias_of_v(np.full(10, 100.0), 4.0) == pytest.approx(0.95 / np.sqrt(0.95 * 0.05 / 4.0))


def command(*arguments, **environment):
    """The command in a process of its own, without what this process has in its environment for TensorFlow."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith('TF_')}
    return subprocess.run(
        [sys.executable, '-m', 'tfp_rmhmc', *arguments],
        capture_output=True,
        text=True,
        cwd=pathlib.Path(__file__).parents[1],
        env=inherited | environment,
        check=False,
    )


def test_nothing_but_the_table_is_printed(tmp_path):
    """No greetings of CUDA and oneDNN, no warnings of retracing; TensorFlow's own logs only on demand."""
    ran = command('omega', '--out', str(tmp_path))
    assert ran.returncode == 0
    assert 'figure' in ran.stdout
    assert ran.stderr == ''
