"""Long range: who learns an answer that lies many tokens back."""
