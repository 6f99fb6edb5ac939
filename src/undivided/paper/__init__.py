"""The paper's tables reproduced, the race against older models, parsing, and answers to learners' questions."""
