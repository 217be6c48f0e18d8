"""What traffic takes on a network, flow by flow: max-min fair shares of links, without packets."""
