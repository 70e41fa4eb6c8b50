"""The paper's experiments, repeated: ``smgopt reproduce``.

Data flow one way: ``items`` say which configurations (``setups``) they take; ``jobs`` runs them; ``series``
reads the records; ``tables``, ``claims`` (judged with ``verdicts``), ``outliers``, ``figures`` and ``report``
show them beside what ``paper`` holds.
"""
