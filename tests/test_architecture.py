"""CONTRIBUTING's picture of the package is its import graph, and its types are checked."""

import ast
import pathlib
import re

import mypy.api
import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / 'tfp_rmhmc'
# Modules without knowledge of others, and the front door, which knows all.
OUTSIDE = {'__init__', '_quiet', '_version'}


def layers():
    """The rooms of the picture, from the bottom of the imports to the top, each with its line's number."""
    picture = re.search(r'```\n(argument.*?)```', (ROOT / 'CONTRIBUTING.md').read_text(), re.DOTALL).group(1)
    found = {}
    for level, line in enumerate(picture.splitlines()):
        names = re.match(r'((?:\w+/?(?:  )?)+)   ', line + '    ').group(1).split()
        found |= dict.fromkeys((name.rstrip('/') for name in names), level)
    return found


def room_of(module):
    """`tfp_rmhmc.metric.base` -> `metric`."""
    parts = module.split('.')
    return parts[1] if len(parts) > 1 else '__init__'


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split('.')[0] == 'tfp_rmhmc':
            if node.module == 'tfp_rmhmc':
                yield from (f'tfp_rmhmc.{alias.name}' for alias in node.names)
            else:
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split('.')[0] == 'tfp_rmhmc')


def edges():
    for path in sorted(PACKAGE.rglob('*.py')):
        relative = path.relative_to(PACKAGE)
        room = relative.parts[0].removesuffix('.py')
        for module in imports_of(path):
            yield room, room_of(module), str(relative)


def test_the_picture_has_every_room():
    rooms = {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir() if path.suffix in ('.py', '')}
    assert set(layers()) == rooms - OUTSIDE - {'__pycache__'}


def test_imports_point_one_way():
    level = layers()
    wrong = [
        f'{where} imports {imported}'
        for room, imported, where in edges()
        if room not in OUTSIDE
        and imported != room
        and imported not in OUTSIDE - {'__init__'}
        # The experiments are users of the package: they come in by the front door.
        and not (imported == '__init__' and room in ('experiment', '__main__'))
        and not (imported in level and level[imported] < level[room])
    ]
    assert wrong == []


def test_a_wrong_import_would_be_seen(tmp_path):
    """The control: a metric that imports a kernel."""
    level = layers()
    path = tmp_path / 'wrong.py'
    path.write_text('from tfp_rmhmc.kernel import RiemannianHMC\n')
    (module,) = imports_of(path)
    assert level[room_of(module)] > level['metric']


@pytest.mark.parametrize(
    ('line', 'complaint'),
    [
        (
            'propose(SoftAbsMetric(), None, None, None, None, None)',
            'incompatible type "SoftAbsMetric"; expected "Integrator"',
        ),
        ('Hamiltonian(SoftAbsMetric(), SoftAbsMetric())', 'expected "LogDensity"'),
        ('MetricCoupling().travel(None, None, None, 3)', 'expected "Leg"'),
        ('Hamiltonian', None),
    ],
)
def test_a_wrong_argument_between_our_modules_is_found_by_mypy(line, complaint, tmp_path):
    path = tmp_path / 'caller.py'
    path.write_text(
        'from tfp_rmhmc.hamiltonian import Hamiltonian\nfrom tfp_rmhmc.integrator import MetricCoupling, propose\n'
        f'from tfp_rmhmc.metric import SoftAbsMetric\n\n{line}\n'
    )
    arguments = ['--config-file', str(ROOT / 'pyproject.toml'), '--cache-dir', str(tmp_path / 'cache'), str(path)]
    output, _, status = mypy.api.run(arguments)
    assert (status == 0) == (complaint is None), output
    assert complaint is None or complaint in output
