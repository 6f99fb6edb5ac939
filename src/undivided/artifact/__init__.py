"""The model folder: written by training, read by everything else."""
