"""The dataflow machine: graphs as nodes that fire when their tokens are there, on several devices and in processes.

Control flow is five primitives: Switch, Merge, Enter, Exit and NextIteration, as in TensorFlow (Yu et al., Dynamic
Control Flow in Large-Scale Machine Learning, EuroSys 2018). It is a machine to see and to check programs with.
"""
