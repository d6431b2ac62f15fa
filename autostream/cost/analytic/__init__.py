"""The analytic model: launch, cores, memory and links."""
