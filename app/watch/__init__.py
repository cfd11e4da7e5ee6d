"""What a run is doing right now, folded from its log: for `hindcast watch`."""
