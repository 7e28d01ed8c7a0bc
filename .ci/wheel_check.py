"""`wheel_check.py CHECKOUT`: checks the wheel that this Python has installed; run it from elsewhere than the checkout."""

import importlib.metadata
import linecache
import pathlib
import re
import sys

SMALL = ('sample_posterior(1000,', 'sample_posterior(200,')


def check_files(checkout: pathlib.Path) -> None:
    """The wheel holds the package's sources, all of them and no others."""
    package = checkout / 'tfp_rmhmc'
    sources = {
        str(path.relative_to(checkout)) for path in package.rglob('*') if path.suffix == '.py' or path.name == 'py.typed'
    }
    packed = {str(path) for path in importlib.metadata.files('tfp_rmhmc') or [] if '__pycache__' not in str(path)}
    packed = {path for path in packed if '.dist-info/' not in path}
    if packed != sources:
        raise SystemExit(f'The wheel and the sources differ in {sorted(packed ^ sources)}.')


def run_example(checkout: pathlib.Path) -> None:
    """The README's first block of code, with few draws."""
    code = re.findall(r'```python\n(.*?)```', (checkout / 'README.md').read_text(), re.DOTALL)[0]
    if SMALL[0] not in code:
        raise SystemExit(f"README's first example does not call {SMALL[0]}")
    code = code.replace(*SMALL)
    # AutoGraph looks for the source of a function by file and line.
    linecache.cache['<README>'] = (len(code), None, code.splitlines(keepends=True), '<README>')
    exec(compile(code, '<README>', 'exec'), {'__name__': 'readme'})


if __name__ == '__main__':
    root = pathlib.Path(sys.argv[1]).resolve()
    check_files(root)
    run_example(root)
    where = pathlib.Path(sys.modules['tfp_rmhmc'].__file__ or '').resolve()
    if root / 'tfp_rmhmc' in where.parents:
        raise SystemExit(f'The checkout was imported in place of the wheel: {where}.')
    print(f"The wheel of tfp_rmhmc {importlib.metadata.version('tfp_rmhmc')} runs the README's first example.")
