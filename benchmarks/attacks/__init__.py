"""What `benchmarks/adversary.py` tries: each file is one place where a stranger, an accident or the machine can do harm."""
