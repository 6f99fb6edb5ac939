"""One large file through several workers: shards, a coordinator, pools of processes or Ray actors."""
