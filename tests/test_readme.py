"""The README's code runs, at small sizes, and its commands are the ones that CI and this test know."""

import linecache
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
SMALL = 'num_burnin=4, num_adaptation=4,'


@pytest.mark.filterwarnings('ignore::UserWarning', 'ignore::FutureWarning', 'ignore::RuntimeWarning')
def test_the_python_blocks_run(capsys):
    blocks = re.findall(r'```python\n(.*?)```', (ROOT / 'README.md').read_text(), re.DOTALL)
    assert len(blocks) == 4
    code = '\n'.join(blocks)
    for full, small in [
        ('sample_chain(200,', 'sample_chain(4,'),
        ('num_leapfrog_steps=23', 'num_leapfrog_steps=2'),
        ('num_burnin_steps=20', 'num_burnin_steps=1'),
        ('sample_posterior(1000, log_prob,', f'sample_posterior(6, log_prob, {SMALL}'),
        ('sample_posterior(500, schools,', f'sample_posterior(6, schools, jit_compile=False, {SMALL}'),
        ('sample_posterior(100, posterior,', f'sample_posterior(6, posterior, jit_compile=False, {SMALL}'),
    ]:
        assert full in code
        code = code.replace(full, small)
    # AutoGraph looks for the source of a function by file and line.
    linecache.cache['<README>'] = (len(code), None, code.splitlines(keepends=True), '<README>')
    exec(compile(code, '<README>', 'exec'), {'__name__': 'readme'})
    printed = capsys.readouterr().out
    assert 'tf.Tensor' in printed
    assert 'theta[7]' in printed


def test_there_are_exactly_two_commands():
    commands = re.findall(r'```sh\n(.*?)```', (ROOT / 'README.md').read_text(), re.DOTALL)
    assert len(commands) == 2
    assert all(command.count('\n') == 1 and command.startswith('python3 -m venv .venv') for command in commands)
    assert 'pytest' in commands[1]


def test_links_lead_somewhere():
    for page in ('README.md', 'colabs/REPRODUCTION.md', 'benchmarks/README.md'):
        text = (ROOT / page).read_text()
        for link in re.findall(r'\]\(([^)#]+)\)', text):
            if not link.startswith('http'):
                assert ((ROOT / page).parent / link).exists(), f'{page} links to {link}'
