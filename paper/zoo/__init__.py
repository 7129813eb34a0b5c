"""Networks as their communities write them, from their authors' initializations, from others', and from ours.

entry.py        what an entry is: network, task, optimizer, schedule, rates; the four ways to begin
coordinates.py  distance and radiance fields, sine networks, physics-informed networks, operators
pictures.py     convolutional networks, U-Nets, image transformers; image classes of packages
sequences.py    language models, sorting, forecasts; text and sound classes of packages
generative.py   flows, diffusion, autoencoders, mixtures
relations.py    tables, recommendations, graphs, sets, values and policies
catalogue.py    all of them, and the two halves
runs.py         training a run, and which runs are left
search.py       how good `find_start` is, on networks of the zoo
study.py        the experiment, its verdicts and its page
"""

from .study import Zoo

__all__ = ["Zoo"]
