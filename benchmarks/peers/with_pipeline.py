"""`pipeline("translation")` of transformers 4 translates lines from stdin, greedily: python with_pipeline.py FOLDER"""

import sys

from transformers import pipeline

translator = pipeline("translation", model=sys.argv[1], num_beams=1, max_length=400)
lines = [line.rstrip("\n") for line in sys.stdin]
for found in translator(lines, batch_size=32):
    print(found["translation_text"])
