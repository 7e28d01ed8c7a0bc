"""Precisions that are a constant plus an exponential of some coordinates, fitted to squared scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ['Array', 'gamma_regression', 'log_precisions']

Array = NDArray[np.floating[Any]]

# Penalty of the regression on standardised coordinates, and on the distance of the constant term from its first guess.
_RIDGE, _RIDGE_OF_CONSTANT = 1e-3, 3e-4
# Log of the constant term's share of the mean precision: where the fit begins, and to what it is drawn first.
_CONSTANT_SHARE, _NO_CONSTANT_SHARE = -3.0, -6.0
# To what it is drawn in the end, without evidence: by so much, in logarithms, below this quantile of the varying term.
_BELOW_LEAST, _LEAST_SEEN = -1.0, 0.01


def log_precisions(parameters: dict[str, Array], values: Array) -> Array:
    """`log(exp(c_i) + exp(a_i + sum_s w_si q_s))` at the setters' values `[n, S]`: `[n, d]`; constant without setters.

    With a `mixture` M the log of `sum_j M_ij (exp(c_j) + exp(a_j + ...))`, see `tfp_rmhmc.metric.pencil`.
    """
    c = parameters['c']
    if values.shape[1] == 0:
        return np.broadcast_to(c, (len(values), len(c)))
    found = np.logaddexp(c, parameters['a'] + values @ parameters['w'])
    if 'mixture' in parameters:
        largest = found.max(axis=1, keepdims=True)
        found = largest + np.log(np.exp(found - largest) @ parameters['mixture'].T)
    return found


def gamma_regression(values: Array, squares: Array, mask: Array) -> dict[str, Array]:
    """`log G_i = log(exp(c_i) + exp(a_i + sum_s w_si q_s))` fitted to squared scores, for each coordinate i by itself.

    Minimises `mean(1/2 log G + 1/2 g^2 / G)` and a ridge, by Fisher scoring with damping: a Gamma regression.

    Args:
      values: of the setters, `[n, S]`.
      squares: of the scores, `[n, d]`.
      mask: which setters count for which coordinate, `[S, d]`.
    """
    mean, deviation = values.mean(axis=0), np.maximum(values.std(axis=0), 1e-300)
    base = np.log(np.mean(squares, axis=0) + 1e-300)
    relative = squares * np.exp(-base)
    num_setters, d = mask.shape
    # Each coordinate's own setters, at most `_MAX_SETTERS`; the first of them fill up for those that have fewer.
    most = max(1, int(mask.sum(axis=0).max()))
    order = np.argsort(-mask, axis=0, kind='stable')[:most]
    counts = np.take_along_axis(mask, order, axis=0)
    features = ((values - mean) / deviation)[:, order] * counts  # [n, most, d]
    theta = np.concatenate([np.full((1, d), -0.05), np.full((1, d), _CONSTANT_SHARE), np.zeros((most, d))])
    target = np.concatenate([np.zeros((1, d)), np.full((1, d), _NO_CONSTANT_SHARE), np.zeros((most, d))])
    theta = _scored(features, relative, theta, target, 1e-4)
    # Draws do not tell a constant term from none if it is smaller than all varying ones that they have seen.
    varying = theta[0] + np.einsum('nkd,kd->nd', features, theta[2:])
    target[1] = np.quantile(varying, _LEAST_SEEN, axis=0) + _BELOW_LEAST
    theta = _scored(features, relative, theta, target, 1e-6)
    w = np.zeros((num_setters, d))
    np.put_along_axis(w, order, theta[2:] * counts, axis=0)
    w /= deviation[:, None]
    return {'c': base + theta[1], 'a': base + theta[0] - mean @ w, 'w': w}


def _scored(features: Array, relative: Array, theta: Array, target: Array, tolerance: float) -> Array:
    """Fisher scoring from `theta`, with a ridge to `target`, both `[2 + k, d]`: the varying term, the constant, slopes.

    Each coordinate until a step promises less than `tolerance` of the loss, a mean of log densities, which is far below its
    sampling error.
    """
    num, most, _ = features.shape
    penalty = 2.0 * np.concatenate([[0.0, _RIDGE_OF_CONSTANT], np.full(most, _RIDGE)])

    def evaluate(theta: Array, on: NDArray[np.integer[Any]]) -> tuple[Array, Array, Array]:
        varying = theta[0] + np.einsum('nkd,kd->nd', features[..., on], theta[2:])
        eta = np.logaddexp(theta[1], varying)
        loss = 0.5 * np.mean(eta + relative[:, on] * np.exp(-eta), axis=0)
        return loss + 0.5 * penalty @ np.square(theta - target[:, on]), eta, np.exp(varying - eta)

    theta = theta.copy()
    on: NDArray[np.integer[Any]] = np.arange(theta.shape[1])  # the coordinates that have not converged
    loss, eta, share = evaluate(theta, on)
    damping = np.full(len(on), 1e-3)
    for _ in range(60):
        slopes = np.concatenate(
            [share[:, None], 1.0 - share[:, None], share[:, None] * features[..., on]], axis=1
        )  # [n, P, d]
        weights = 0.5 * (1.0 - relative[:, on] * np.exp(-eta)) / num
        gradient = np.einsum('nd,npd->pd', weights, slopes) + penalty[:, None] * (theta - target)[:, on]
        information = 0.5 * np.einsum('npd,nqd->dpq', slopes, slopes) / num
        information += np.diag(penalty) + (damping + 1e-9)[:, None, None] * np.eye(len(penalty))
        step = np.linalg.solve(information, gradient.T[..., None])[..., 0].T
        proposed = theta[:, on] - np.clip(step, -2.0, 2.0)
        new_loss, new_eta, new_share = evaluate(proposed, on)
        better = new_loss < loss
        theta[:, on] = np.where(better, proposed, theta[:, on])
        eta, share = np.where(better, new_eta, eta), np.where(better, new_share, share)
        loss = np.where(better, new_loss, loss)
        damping = np.clip(np.where(better, 0.3 * damping, 10.0 * damping), 1e-6, 1e6)
        left = np.sum(gradient * step, axis=0) >= tolerance
        if not left.any():
            break
        on, loss, damping, eta, share = on[left], loss[left], damping[left], eta[:, left], share[:, left]
    return theta
