"""Errors, console, files, locks, manifests, random numbers, special ids: what every package stands on."""
