"""The notebooks run from top to bottom, at small sizes."""

import pathlib

import nbclient
import nbformat
import pytest

COLABS = sorted((pathlib.Path(__file__).parents[1] / 'colabs').glob('*.ipynb'))


def test_all_five_are_there():
    assert [path.stem for path in COLABS] == ['explicit_rmhmc', 'hierarchical', 'keras_bnn', 'metrics', 'quickstart']


@pytest.mark.filterwarnings('ignore::DeprecationWarning', 'ignore::RuntimeWarning')
@pytest.mark.parametrize('path', COLABS, ids=lambda path: path.stem)
def test_a_notebook_runs(path):
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == 'code']
    assert f'/blob/main/colabs/{path.name})' in notebook.cells[0].source  # open in Colab
    # From the repository, since the name is not registered at a package index.
    assert code[0].source.startswith("REPOSITORY = 'https://github.com/")
    assert "%pip install -q 'tfp_rmhmc[colab] @ git+{REPOSITORY}'" in code[0].source
    assert 'SMALL = False' in code[1].source
    code[1].source = code[1].source.replace('SMALL = False', 'SMALL = True')
    nbclient.NotebookClient(notebook, timeout=600, kernel_name='python3').execute()
    assert any('image/png' in output.get('data', {}) for cell in code for output in cell.outputs)
