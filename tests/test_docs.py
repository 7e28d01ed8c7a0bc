"""The documentation: its code runs at small sizes, its reference misses no public name, and all files know one address."""

import configparser
import functools
import importlib.util
import linecache
import pathlib
import re

import pytest

import tfp_rmhmc

ROOT = pathlib.Path(__file__).parents[1]
DOCS = ROOT / 'docs'
# Pages whose blocks of Python are executed, from top to bottom.
PAGES = sorted(path for path in DOCS.rglob('*.md') if '```python' in path.read_text())
SMALL = [
    (r'sample_posterior\(\d+', 'sample_posterior(6'),
    (r'sample_chain\(\s*\d+', 'sample_chain(3'),
    (r'num_burnin_steps=\d+', 'num_burnin_steps=2'),
    (r'num_adaptation_steps=\d+', 'num_adaptation_steps=2'),
    (r'num_leapfrog_steps=\d+', 'num_leapfrog_steps=2'),
    (r'size=\(\d+, 11\)', 'size=(4, 11)'),
    (r'num_chains=\d+', 'num_chains=4'),
    (r'extend\(500\)', 'extend(5)'),
    (r'\+ 500$', '+ 5'),
    (r'target_ess=\d+', 'target_ess=1'),
]


@pytest.mark.filterwarnings('ignore::UserWarning', 'ignore::RuntimeWarning', 'ignore::FutureWarning')
@pytest.mark.parametrize('page', PAGES, ids=lambda path: path.stem)
def test_the_code_of_a_page_runs(page, monkeypatch):
    small = functools.partial(tfp_rmhmc.sample_posterior, num_burnin=4, num_adaptation=4, jit_compile=False)
    monkeypatch.setattr(tfp_rmhmc, 'sample_posterior', small)
    code = '\n'.join(re.findall(r'```python\n(.*?)```', page.read_text(), re.DOTALL))
    for full, less in SMALL:
        code = re.sub(full, less, code, flags=re.MULTILINE)
    # AutoGraph looks for the source of a function by file and line.
    name = f'<{page.stem}>'
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    exec(compile(code, name, 'exec'), {'__name__': 'docs'})


def hooks():
    """docs/hooks.py, which is no part of a package."""
    spec = importlib.util.spec_from_file_location('hooks', DOCS / 'hooks.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_has_every_public_name_once():
    """What the sources say is what the imported package has."""
    names = [name for room in hooks().public_names().values() for name in room]
    expected = {f'tfp_rmhmc.{name}' for name in tfp_rmhmc.__all__} - {'tfp_rmhmc.keras', 'tfp_rmhmc.__version__'}
    expected |= {f'tfp_rmhmc.keras.{name}' for name in tfp_rmhmc.keras.__all__}
    assert sorted(names) == sorted(expected)
    text = '\n'.join(hooks().reference(room, names) for room, names in hooks().public_names().items())
    assert sorted(re.findall(r'^::: (\S+)$', text, re.MULTILINE)) == sorted(expected)


def test_links_of_the_repository_become_links_of_the_documentation():
    text = '[a](../benchmarks/README.md#step) ![b](funnel_marginal.png) [c](quickstart.ipynb) [d](../setup.cfg) `x[0](y)`'
    found, pictures = hooks().relinked(text, 'colabs/REPRODUCTION.md', 'reproduction.md')
    address = hooks().address()
    assert found == (
        f'[a](benchmarks.md#step) ![b](colabs/funnel_marginal.png) [c](notebooks/quickstart.md) '
        f'[d]({address}/blob/main/setup.cfg) `x[0](y)`'
    )
    assert pictures == ['colabs/funnel_marginal.png']


def test_every_page_is_in_the_navigation():
    nav = (ROOT / 'mkdocs.yml').read_text().partition('\nnav:\n')[2]
    listed = set(re.findall(r'^ *- (\S+\.md)$', nav, re.MULTILINE))
    assert listed == {str(path.relative_to(DOCS)) for path in DOCS.rglob('*.md')}


def test_recipes_are_those_of_contributing():
    """Which are tested more thoroughly."""
    guide = (ROOT / 'CONTRIBUTING.md').read_text()
    for page in ('write_a_metric', 'write_an_integrator'):
        recipe = re.search(r'^(class .*?)```', (DOCS / 'howto' / f'{page}.md').read_text(), re.DOTALL | re.MULTILINE)
        assert recipe.group(1) in guide


def test_all_files_know_one_address():
    config = configparser.ConfigParser()
    config.read(ROOT / 'setup.cfg')
    address = config['metadata']['url']
    owner = address.removeprefix('https://github.com/')
    files = [*ROOT.glob('*.*'), *(path for room in ('benchmarks', 'colabs', 'docs') for path in (ROOT / room).rglob('*.*'))]
    known = 0
    for path in files:
        if path.suffix in ('.md', '.cff', '.cfg', '.ipynb', '.yml', '.toml'):
            for found in re.findall(r'github(?:\.com)?/([\w.-]+/tfp_rmhmc)\b', path.read_text()):
                assert found == owner, f'{path} has {found}'
                known += 1
    assert known > 5


def test_version_and_date_are_the_same_everywhere():
    citation = dict(re.findall(r'^(\S+): (\S+)$', (ROOT / 'CITATION.cff').read_text(), re.MULTILINE))
    assert citation['version'] == tfp_rmhmc.__version__
    newest = re.search(r'^## (\d\S+) \((\S+)\)$', (ROOT / 'CHANGELOG.md').read_text(), re.MULTILINE)
    assert newest.groups() == (tfp_rmhmc.__version__, citation['date-released'])
