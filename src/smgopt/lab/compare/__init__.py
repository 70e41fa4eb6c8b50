"""Optimizers beside one another on any data and network, each with the step that suits it best.

``contest``    what is compared: a file, and the runs that come of it
``hold``       the runs, done
``outcome``    what they have shown
``page``       the same as documentation
``command``    what ``smgopt compare`` prints
"""
