"""The parts of the paper: attention, layers, dropout, loss; and the seam to fast arithmetic."""
