"""The mutants of `make mutants`, package by package: one for each equation, rule and promise."""

from mutants import Mutant

MUTANTS: tuple[Mutant, ...] = ()
