"""What is wrong with parallel text: checks of whole blocks of lines at a time, streamed."""
