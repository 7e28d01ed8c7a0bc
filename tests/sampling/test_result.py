"""What is said of draws: R-hat and the energy fraction beside ArviZ's, and coordinates that cannot move."""

import arviz
import numpy as np
import pytest
import tensorflow_probability as tfp

import tfp_rmhmc as rm

tfd = tfp.distributions


def result_of(draws, energy=None):
    """Draws `[n, chains, event...]` as a run gives them back."""
    shape = draws.shape[:2]
    energy = np.random.default_rng(9).normal(size=shape) if energy is None else energy
    trace = {'lp': -energy, 'energy': energy, 'diverging': np.zeros(shape, bool), 'status': np.zeros(shape, np.int32)}
    return rm.PosteriorDraws(draws, trace, {}, ['x'], {})


@pytest.mark.parametrize('num_draws', [4, 5, 100, 101])
@pytest.mark.parametrize('kind', ['normal', 'heavy', 'shifted', 'ties'])
def test_r_hat_is_arviz_s(kind, num_draws, rng):
    x = rng.normal(size=(num_draws, 4, 2, 3))
    x = {
        'normal': lambda: x,
        'heavy': lambda: rng.standard_cauchy(x.shape),
        'shifted': lambda: x + 0.3 * np.arange(4)[:, None, None],
        'ties': lambda: np.repeat(x[::2], 2, axis=0)[:num_draws],
    }[kind]()
    ours = result_of(x).r_hat()['x']
    with np.errstate(divide='ignore'):  # four draws that are two
        theirs = [[arviz.rhat(x[:, :, i, j].T) for j in range(3)] for i in range(2)]
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


@pytest.mark.parametrize('num_draws', [4, 101])
def test_energy_fractions_are_arviz_s(num_draws, rng):
    energy = np.cumsum(rng.normal(size=(num_draws, 3)), axis=0)
    np.testing.assert_allclose(result_of(rng.normal(size=(num_draws, 3)), energy).bfmi(), arviz.bfmi(energy.T), rtol=1e-12)


def test_an_infinite_energy_does_not_silence_the_warning(rng):
    energy = np.cumsum(rng.normal(size=(200, 2)), axis=0)
    draws = rng.normal(size=(200, 2))
    without = result_of(draws, energy).bfmi()
    energy[50, 0] = np.inf
    result = result_of(draws, energy)
    assert without.max() < 0.3
    np.testing.assert_allclose(result.bfmi(), without, rtol=0.2)
    assert any('E-BFMI' in sentence for sentence in result.problems())
    energy[:, 1] = np.nan
    assert any('energies of chain 1 are not finite' in sentence for sentence in result_of(draws, energy).problems())


def test_coordinates_that_are_constant_by_construction_are_left_out_and_named():
    factors = tfd.CholeskyLKJ(3, 2.0).sample((400, 4), seed=(1, 2)).numpy()
    result = result_of(factors)
    assert np.isnan(result.r_hat()['x'][0, 0])
    assert result.problems() == []
    assert result.notes() == ['4 of 9 coordinates of `x` are constant and are left out of R-hat.']
    assert result.summary().attrs['notes'] == result.notes()
    factors[:, 0, 2, 0] += 5.0
    (sentence,) = result_of(factors).problems()
    assert sentence.startswith('R-hat of `x` is')
    assert sentence.endswith('(4 of 9 coordinates of `x` are constant and are left out of R-hat.)')


@pytest.mark.parametrize('apart', [0.0, 1.0])
def test_chains_that_never_moved_are_not_constant_by_construction(apart):
    """All from one point, or each from its own."""
    draws = np.zeros((100, 4, 2)) + apart * np.arange(4)[:, None]
    result = result_of(draws)
    assert result.notes() == []
    assert any(sentence.startswith('R-hat of `x` is') for sentence in result.problems())
