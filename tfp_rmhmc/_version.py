"""The version, readable without importing TensorFlow."""

__version__ = '0.2.0'
