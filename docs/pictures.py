"""Makes the pictures of the concept pages: `python docs/pictures.py`, from the repository's root, in about a minute."""

from __future__ import annotations

import linecache
import pathlib
import re
import sys
from typing import Any

import matplotlib

matplotlib.use('Agg')
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import tfp_rmhmc as rm

OUT = pathlib.Path(__file__).parent / 'pictures'
BLUE, ORANGE, GREEN, RED = '#0072B2', '#E69F00', '#009E73', '#D55E00'
V, X = np.meshgrid(np.linspace(-5, 5, 120), np.linspace(-6, 6, 120), indexing='ij')


def funnel(q: tf.Tensor) -> tf.Tensor:
    """v ~ N(0, 4), x ~ N(0, exp(-v))."""
    v, x = q[..., 0], q[..., 1]
    return -tf.square(v) / 8 + 0.5 * v - 0.5 * tf.exp(v) * tf.square(x)


def contours(axis: Any, title: str) -> None:
    """The funnel, x to the right and v upwards."""
    height = funnel(tf.constant(np.stack([V, X], -1))).numpy()
    axis.contour(
        X, V, height, levels=height.max() - np.array([8, 5, 3, 1.5, 0.4]), colors='gray', linewidths=0.6, linestyles='solid'
    )
    axis.set(title=title, xlabel='x', xlim=(-6, 6), ylim=(-5, 5))


def panels(columns: int) -> tuple[Any, Any]:
    """A row of axes without frames."""
    figure, axes = plt.subplots(1, columns, figsize=(3.9 * columns, 3.5))
    for axis in axes:
        axis.spines[['top', 'right']].set_visible(False)
    axes[0].set_ylabel('v')
    return figure, axes


def save(figure: Any, name: str) -> None:
    """As `pictures/name.png`."""
    figure.tight_layout()
    OUT.mkdir(exist_ok=True)
    figure.savefig(OUT / f'{name}.png', dpi=110)
    plt.close(figure)
    print(OUT / f'{name}.png')


SEPARABLE = rm.SeparableMetric(lambda v, x: [-0.5 * np.log(1 / 4 + 1 / 2), -0.5 * v], blocks=[[0], [1]])


def metric() -> None:
    """A unit of length around three points, by three metrics."""
    figure, axes = panels(3)
    points = tf.constant([[-3.0, 2.0], [0.0, 0.5], [3.0, 0.1]], tf.float64)
    density = rm.LogDensity.at_state(funnel, [points])
    angles = np.linspace(0, 2 * np.pi, 80)
    kinds = [('constant', rm.EuclideanMetric()), ('SoftAbs', rm.SoftAbsMetric(4.0)), ('separable', SEPARABLE)]
    for axis, (name, metric) in zip(axes, kinds, strict=True):
        contours(axis, name)
        factor = metric.at(density, points).factor
        # S z with S S' = G; G^-1 S z has covariance G^-1.
        circle = [factor.solve(factor.sqrt_multiply(tf.tile([[np.cos(a), np.sin(a)]], [3, 1]))) for a in angles]
        for i, (v, x) in enumerate(points.numpy()):
            steps = np.array([step[i] for step in circle])
            axis.plot(x + steps[:, 1], v + steps[:, 0], color=RED, lw=1.6)
            axis.plot(x, v, '.', color=RED)
    save(figure, 'metric')


def separable() -> None:
    """Trajectories from one point with the same noise, a dot for each step; and what one block tells the other."""
    figure, axes = panels(3)
    start = tf.constant([[1.5, 0.3]], tf.float64)
    for axis, (name, metric) in zip(
        axes, [('constant metric', rm.EuclideanMetric()), ('separable', SEPARABLE)], strict=False
    ):

        @tf.function(autograph=False)
        def end(num: tf.Tensor, metric: rm.Metric = metric) -> tf.Tensor:
            kernel = rm.UncalibratedRiemannianHMC(funnel, np.float64(0.3), num, metric=metric)
            return kernel.one_step(start, kernel.bootstrap_results(start), seed=(3, 6))[0]

        path = np.concatenate([start] + [end(tf.constant(num)) for num in range(1, 31)])
        contours(axis, f'{name}, 30 steps')
        axis.plot(path[:, 1], path[:, 0], '.-', lw=0.8, ms=5, color=BLUE)
        axis.plot(0.3, 1.5, 'o', color=RED)
    v = np.linspace(-5, 5, 100)
    axes[2].plot(np.exp(-0.5 * v), v, color=BLUE, lw=2, label='of x, set by v')
    axes[2].axvline((1 / 4 + 1 / 2) ** -0.5, color=ORANGE, lw=2, label='of v, constant')
    axes[2].set(title='scales', xlabel='scale', xlim=(0, 12), ylim=(-5, 5))
    axes[2].legend(frameon=False)
    save(figure, 'separable')


def learned_scales() -> None:
    """The README's first example: what `sample_posterior` makes of a funnel that it was told nothing about."""
    code = re.findall(r'```python\n(.*?)```', (OUT.parents[1] / 'README.md').read_text(), re.DOTALL)[0]
    # AutoGraph looks for the source of a function by file and line.
    linecache.cache['<README>'] = (len(code), None, code.splitlines(keepends=True), '<README>')
    namespace: dict[str, Any] = {'__name__': 'readme'}
    exec(compile(code, '<README>', 'exec'), namespace)
    result = namespace['result']
    figure, axes = panels(2)
    draws = np.reshape(result.draws, [-1, 11])
    axes[0].plot(draws[:, 1], draws[:, 0], '.', ms=2, alpha=0.5, color=BLUE)
    axes[0].set(title='4,000 draws', xlabel='x[1]', ylabel='x[0]', xlim=(-30, 30), ylim=(-10, 10))
    result.plot_learned_scales(axes[1])
    axes[1].set_title('who sets whose scale')
    print(result.seconds, result.problems())
    save(figure, 'learned_scales')


def evidence() -> None:
    """The README's table: the default by NUTS, on a logarithmic axis."""
    text = (OUT.parents[1] / 'README.md').read_text()
    rows = re.findall(r'^\| ([^|*]+?) \| 1\.[^|]*\| (1\.[^|]*)\| \**([\d.]+)\** \| \**([\d.]+)\** \|$', text, re.MULTILINE)
    names = [name + ('\n(NUTS biased)' if 'biased' in nuts else '') for name, nuts, _, _ in rows]
    where = np.arange(len(rows))[::-1]
    figure, axis = plt.subplots(figsize=(7.5, 4.6))
    axis.spines[['top', 'right']].set_visible(False)
    axis.barh(where + 0.2, [float(row[2]) - 1 for row in rows], 0.38, color=BLUE, label='per gradient', left=1)
    axis.barh(where - 0.2, [float(row[3]) - 1 for row in rows], 0.38, color=ORANGE, label='per second', left=1)
    axis.axvline(1.0, color='black', lw=1)
    axis.set(xscale='log', xlim=(0.4, 220), xlabel='effective samples of the default by those of NUTS, warm-up counted')
    axis.set_yticks(where, names, fontsize=9)
    axis.set_xticks([0.5, 1, 2, 5, 10, 20, 50, 100, 200], ['0.5', '1', '2', '5', '10', '20', '50', '100', '200'])
    axis.minorticks_off()
    axis.legend(frameon=False, loc='lower center', bbox_to_anchor=(0.5, 1.0), ncols=2)
    save(figure, 'evidence')


def doubled_space() -> None:
    """Base and companion of the doubled phase space, with and without what holds them together."""
    metric, h, steps = rm.SoftAbsMetric(1.0), 0.14, 55
    start = np.array([[-1.0, 1.0]])
    density = rm.LogDensity.at_state(funnel, [tf.constant(start)])
    hamiltonian = rm.Hamiltonian(density, metric)

    def flow(q: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        local = hamiltonian.at(tf.constant(q))
        return local.velocity(tf.constant(p)).numpy(), local.force(tf.constant(p)).numpy()

    def turned(q: np.ndarray, a: np.ndarray, b: np.ndarray, angle: float, rate: float) -> tuple[np.ndarray, np.ndarray]:
        factor = hamiltonian.at(tf.constant(q)).factor
        c, s = np.cos(angle), np.sin(angle)
        solved, multiplied = factor.solve(tf.constant(b)).numpy(), factor.multiply(tf.constant(a)).numpy()
        return c * a - s / rate * solved, s * rate * multiplied + c * b

    figure, axes = panels(2)
    for axis, (title, angle) in zip(
        axes, [('two copies, not coupled', None), ('coupled: MetricCoupling', 1.4)], strict=True
    ):
        q, p = start.copy(), np.array([[0.4, 0.9]])
        q_copy, p_copy = q + 0.01, p.copy()
        base, companion = [q], [q_copy]
        for _ in range(steps):  # A(h/2) B(h/2) C B(h/2) A(h/2), as MetricCoupling's docstring has it
            dq, dp = flow(q_copy, p_copy)
            q, p = q + h / 2 * dq, p + h / 2 * dp
            dq, dp = flow(q, p)
            q_copy, p_copy = q_copy + h / 2 * dq, p_copy + h / 2 * dp
            if angle is not None:
                a, b = turned(q, q_copy - q, p_copy - p, angle, 2.0)
                q_copy, p_copy = q + a, p + b
            q_copy, p_copy = q_copy + h / 2 * dq, p_copy + h / 2 * dp
            dq, dp = flow(q_copy, p_copy)
            q, p = q + h / 2 * dq, p + h / 2 * dp
            base.append(q)
            companion.append(q_copy)
        contours(axis, title)
        axis.set(xlim=(-2.5, 2.5), ylim=(-2, 3))
        for path, color, name in [(base, BLUE, 'base'), (companion, ORANGE, 'companion')]:
            axis.plot(*np.concatenate(path)[:, ::-1].T, '.-', lw=0.8, ms=4, color=color, label=name)
    axes[0].legend(frameon=False, loc='lower left')
    save(figure, 'doubled_space')


if __name__ == '__main__':
    tf.get_logger().setLevel('ERROR')
    pictures = [metric, separable, learned_scales, doubled_space, evidence]
    for picture in pictures:
        if not sys.argv[1:] or picture.__name__ in sys.argv[1:]:
            picture()
