"""(index, options, seed, epoch) -> the samples, crops and flips of each batch, drawn ahead."""
