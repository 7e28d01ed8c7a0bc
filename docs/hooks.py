"""What mkdocs adds to the pages of this folder: the repository's own pages, the notebooks, and the reference.

Nothing is executed and nothing is imported from the package: notebooks are shown with the outputs that they were saved
with, and the public names are read from the source. No network is needed.
"""

from __future__ import annotations

import ast
import base64
import configparser
import pathlib
import posixpath
import re
from typing import TYPE_CHECKING, Any

import nbformat

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Pages of the repository, and where they go: [path, page, title].
PAGES = [
    ('benchmarks/README.md', 'benchmarks.md', 'Benchmarks'),
    ('colabs/REPRODUCTION.md', 'reproduction.md', "The paper's figures"),
    ('CONTRIBUTING.md', 'contributing.md', 'Contributing'),
    ('CHANGELOG.md', 'changelog.md', 'Changelog'),
]
# Rooms of the package, most wanted first; those that are not named here follow.
ROOMS = {
    'sampling': 'From a model to draws',
    'kernel': 'Kernels',
    'metric': 'Metrics',
    'integrator': 'Integrators',
    'adaptation': 'Trajectory lengths',
    'keras': 'Keras models',
    'data_sum': 'Sums over data',
    'diagnostic': 'Trace functions',
}


def address() -> str:
    """The project's address, which setup.cfg holds."""
    config = configparser.ConfigParser()
    config.read(ROOT / 'setup.cfg')
    return config['metadata']['url']


def notebooks() -> list[str]:
    """Their names, the first ones to read first."""
    first = ['quickstart', 'hierarchical']
    return sorted((path.stem for path in (ROOT / 'colabs').glob('*.ipynb')), key=lambda name: (name not in first, name))


def public_names() -> dict[str, list[str]]:
    """The public names of each room, `{'metric': ['tfp_rmhmc.DenseMetric', ...]}`, as the sources say it."""
    found: dict[str, list[str]] = {}
    for prefix, path in [('tfp_rmhmc', 'tfp_rmhmc/__init__.py'), ('tfp_rmhmc.keras', 'tfp_rmhmc/keras/__init__.py')]:
        for node in ast.parse((ROOT / path).read_text()).body:
            if isinstance(node, ast.ImportFrom) and re.match(r'tfp_rmhmc\.[^_]', node.module or ''):
                names = [alias.name for alias in node.names if not alias.name.startswith('_')]
                found.setdefault(node.module.split('.')[1], []).extend(f'{prefix}.{name}' for name in names)
    rank = {room: index for index, room in enumerate(ROOMS)}
    rooms = sorted((room for room in found if found[room]), key=lambda room: (rank.get(room, len(rank)), room))
    return {room: found[room] for room in rooms}


def reference(room: str, names: list[str]) -> str:
    """The page of a room: what it is for, then each name by its docstring."""
    path = ROOT / 'tfp_rmhmc' / room
    source = path / '__init__.py' if path.is_dir() else path.with_suffix('.py')
    docstring = ast.get_docstring(ast.parse(source.read_text())) or ''
    return '\n\n'.join([f'# {ROOMS.get(room, room)}', docstring, *(f'::: {name}' for name in names)]) + '\n'


def notebook_page(path: pathlib.Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and the pictures that it shows, by name."""
    pictures: dict[str, bytes] = {}
    parts = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == 'markdown':
            parts.append(cell.source)
            continue
        parts.append(f'```python\n{cell.source}\n```')
        for output in cell.outputs:
            data = output.get('data', {})
            if 'image/png' in data:
                name = f'{path.stem}_{len(pictures)}.png'
                pictures[name] = base64.b64decode(data['image/png'])
                parts.append(f'![output]({name})')
            elif 'text/html' in data:
                parts.append(re.sub(r'<style.*?</style>\s*|\n\s*(?=\n)', '', data['text/html'], flags=re.DOTALL))
            else:
                parts.append(f'```text\n{(output.get("text") or data.get("text/plain", "")).rstrip()}\n```')
    return '\n\n'.join(parts) + '\n', pictures


def relinked(text: str, source: str, page: str) -> tuple[str, list[str]]:
    """Links of a page of the repository, as links of the documentation; and the pictures among them, by path."""
    targets = {path: to for path, to, _ in PAGES} | {'README.md': 'index.md'}
    targets |= {f'colabs/{name}.ipynb': f'notebooks/{name}.md' for name in notebooks()}
    pictures = []

    def replaced(match: re.Match[str]) -> str:
        link, _, anchor = match.group(1).partition('#')
        if not link or re.match(r'\w+:', link):
            return match.group(0)
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
        to = targets.get(path)
        if path.startswith('docs/'):
            to = path.removeprefix('docs/')
        elif path.endswith('.png'):
            pictures.append(path)
            to = path
        if to is None:
            return f']({address()}/blob/main/{path})'
        return f']({posixpath.relpath(to, posixpath.dirname(page))}{"#" + anchor if anchor else ""})'

    # Every second part is code, in which brackets mean something else.
    parts = re.split(r'(```.*?```|`[^`\n]*`)', text, flags=re.DOTALL)
    parts[::2] = [re.sub(r'\]\(([^)\s]+)\)', replaced, part) for part in parts[::2]]
    return ''.join(parts), pictures


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Address and navigation."""
    config.repo_url = address()
    nav: list[Any] = list(config.nav or [])
    nav.append({'Notebooks': [f'notebooks/{name}.md' for name in notebooks()]})
    nav.append({'Reference': [{ROOMS.get(room, room): f'reference/{room}.md'} for room in public_names()]})
    nav.append({'The project': [{title: page} for _, page, title in PAGES]})
    config.nav = nav
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made here."""
    from mkdocs.structure.files import File  # here: the tests read this module without mkdocs

    def add(uri: str, content: str | bytes) -> None:
        files.append(File.generated(config, uri, content=content))

    for room, names in public_names().items():
        add(f'reference/{room}.md', reference(room, names))
    repository_pages = [(source, page, (ROOT / source).read_text()) for source, page, _ in PAGES]
    for name in notebooks():
        text, pictures = notebook_page(ROOT / 'colabs' / f'{name}.ipynb')
        repository_pages.append((f'colabs/{name}.ipynb', f'notebooks/{name}.md', text))
        for picture, content in pictures.items():
            add(f'colabs/{picture}', content)
    made = {file.src_uri for file in files}
    for source, page, text in repository_pages:
        text, paths = relinked(text, source, page)
        add(page, text)
        for path in paths:
            if path not in made:
                made.add(path)
                add(path, (ROOT / path).read_bytes())
    return files
