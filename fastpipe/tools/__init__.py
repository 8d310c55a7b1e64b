"""What the command line does beside packing: verify, show, doctor, bench, demo."""
