"""`python -m tfp_rmhmc [funnel | logistic | prior | omega | digits]`: the paper's experiments, as tables and pictures."""

from __future__ import annotations

import argparse
import importlib
import logging
import pathlib
import sys

__all__ = ['main']

# name: what it shows, and the options that it takes beside --seed, --out and --quick.
EXPERIMENTS = {
    'funnel': (
        'Table 1: the funnel with NUTS, hand-tuned HMC, implicit, explicit and no-U-turn RMHMC, and with the default',
        {'draws', 'chains', 'kernel', 'metric', 'dtype', 'jit'},
    ),
    'logistic': (
        'figure 1: paths of the three schemes on a 1-D logistic regression, from (10, 0)',
        {'draws', 'dtype', 'jit'},
    ),
    'prior': (
        'appendix D: the influence of the prior on a 10-D logistic regression',
        {'draws', 'chains', 'dtype', 'jit'},
    ),
    'omega': ('appendix D: the influence of Omega on one trajectory', {'dtype'}),
    'digits': ('a convolutional network on the digits of scikit-learn, with HMC and RMHMC', {'draws'}),
}


class _Parser(argparse.ArgumentParser):
    """Errors in one sentence, exit code 2."""

    def error(self, message: str) -> None:  # type: ignore[override]
        print(f'tfp_rmhmc: {message}.', file=sys.stderr)
        raise SystemExit(2)


def _positive(text: str) -> int:
    value = int(text) if text.lstrip('-').isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f'must be a positive integer, got {text!r}')
    return value


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    listing = '\n'.join(f'  {name:9} {text}' for name, (text, _) in EXPERIMENTS.items())
    parser = _Parser(
        prog='python -m tfp_rmhmc',
        description=f'The experiments of Cobb et al. 2019:\n{listing}',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument('experiment', nargs='?', default='funnel', choices=list(EXPERIMENTS), metavar='experiment')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--draws', type=_positive, default=None, help='of each chain; the baselines make 25 times as many')
    parser.add_argument('--chains', type=_positive, default=4)
    parser.add_argument(
        '--kernel', default='all', choices=['all', 'nuts', 'hmc', 'implicit', 'explicit', 'rnuts', 'default']
    )
    parser.add_argument('--metric', default='softabs', choices=['softabs', 'softabs-1', 'diagonal', 'monge', 'euclidean'])
    parser.add_argument('--dtype', default='float64', choices=['float64', 'float32'])
    parser.add_argument('--jit', action=argparse.BooleanOptionalAction, default=True, help='compile with XLA')
    parser.add_argument('--out', default='tfp_rmhmc_out', help='directory for the figures')
    parser.add_argument('--quick', action='store_true', help='a tenth of the draws')
    options = parser.parse_args(arguments)
    for name in sorted(set.union(*(taken for _, taken in EXPERIMENTS.values())) - EXPERIMENTS[options.experiment][1]):
        value = getattr(options, name)
        if value != parser.get_default(name):
            parser.error(f'--{name} (got {value}) is not an option of the experiment {options.experiment}')
    return options


def main(arguments: list[str] | None = None) -> int:
    """Runs an experiment; returns the exit code."""
    options = parse(arguments)
    try:  # now, not after minutes of sampling
        pathlib.Path(options.out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f'tfp_rmhmc: --out {options.out} cannot be a directory: {error.strerror}.', file=sys.stderr)
        return 2
    # TFP's effective sample size warns of its own Fourier transform.
    logging.getLogger('tensorflow').setLevel(logging.ERROR)
    module = importlib.import_module(f'tfp_rmhmc.experiment.{options.experiment}')
    try:
        return module.run(options)
    except (ValueError, OSError, ModuleNotFoundError) as error:
        print(f'tfp_rmhmc: {str(error).splitlines()[0]}', file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print('interrupted', file=sys.stderr)
        return 130


if __name__ == '__main__':
    raise SystemExit(main())
