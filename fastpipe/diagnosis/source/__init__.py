"""The user's source files -> the lines that a finding names.

A place is a line as text: file:line.
"""
