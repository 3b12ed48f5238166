"""The stand-in engine: a package that takes SGLang's name inside the lab's engine image, and the making of that image."""
