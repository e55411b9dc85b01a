"""Communication of the device: packets, links, retransmission."""
