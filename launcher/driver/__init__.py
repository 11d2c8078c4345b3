"""The piece that drives horovod.runner, run by path under the training's own Python.

It is a room of its own: standard library only, syntax of Python 3.6, nothing of distmon imported. It loads itself under the
private name `_distmon_driver` (main.py), so that neither its folder nor distmon ever enters the training's `sys.path`.
"""
