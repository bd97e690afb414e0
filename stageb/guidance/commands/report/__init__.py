"""A run on one page: a self-contained HTML file, made of what the run's files say.

It is derived and can be written again at any time (``stageb report RUN``). It shows how long things
took, so two equal runs leave two different ones: it is none of the files of which equal bytes are
promised.
"""

REPORT = "report.html"  # in the run's folder
