"""`python -m benchmarks NAME`: a table, and a JSON file if asked for."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pathlib
import platform
import time

BENCHMARKS = {
    'default': 'default',
    'seeds': 'seeds',
    'step': 'step',
    'choice': 'choice',
    'ess': 'ess',
    'growth': 'growth',
    'compile': 'compilation',
    'network': 'network',
    'coupling': 'coupling',
    'predictive': 'predictive',
    'integrators': 'integrators',
    'posteriors': 'posteriors',
    'peers': 'comparison',
    'memory': 'memory',
}


def main() -> None:
    parser = argparse.ArgumentParser(prog='python -m benchmarks', description=__doc__)
    parser.add_argument('benchmark', choices=list(BENCHMARKS))
    parser.add_argument('--quick', action='store_true', help='smaller sizes')
    parser.add_argument('--json', type=pathlib.Path, help='file for the figures')
    arguments = parser.parse_args()
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    import tensorflow as tf

    machine = f'{os.cpu_count()} cores, {platform.machine()}, TensorFlow {tf.__version__}'
    machine += f', GPUs: {len(tf.config.list_physical_devices("GPU"))}'
    print(machine)
    begin = time.perf_counter()
    found = importlib.import_module(f'benchmarks.{BENCHMARKS[arguments.benchmark]}').run(quick=arguments.quick)
    print(f'{time.perf_counter() - begin:.0f} s')
    if arguments.json:
        arguments.json.write_text(json.dumps({'machine': machine, arguments.benchmark: found}, indent=1, default=str))


if __name__ == '__main__':
    main()
