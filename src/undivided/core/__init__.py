"""What every package stands on: errors, console, files, locks, manifests, random numbers, special ids."""
