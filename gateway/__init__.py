"""Every model call and every cent: relay, meter, providers and the fake provider."""
