"""The steps of a trace: which of them count, how long they take, and where their time goes on the device and on the host.

``choice`` says which steps figures are of, ``device`` what the device did, ``phases`` what the host did, ``times`` puts them
together, ``summary`` gives the figures of a step. The columns of Ascend's result files are in ``ascend_step_times``.
"""
