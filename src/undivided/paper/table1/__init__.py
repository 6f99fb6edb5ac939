"""Table 1: complexity, sequential operations and path lengths of layers."""
