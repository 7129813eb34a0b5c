"""The default recipe for whole models, for every framework: what each layer starts as, and the plan that says so.

Nothing is imported here: the scheme `recipe`, one of `schemes`, is made of `rules`, and the others use `schemes`.
"""
