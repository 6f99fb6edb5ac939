"""The one seam to fast arithmetic: C kernels, bfloat16 and packed products, each with its reference in PyTorch."""
