"""Learns guidance: by code from counted evidence, and by a model that reflects.

A *term* is a condition that tickets suggest, with a bit mask of those that meet it. A *line* (a
``Conjunction``) is terms that must hold together. A *list* gives its verdict where one of its lines
holds; a *card* gives points for lines, and its verdict from a *limit* on. A *rule set* is the lists
and cards of one guidance, and the verdict of all other tickets. A *learner* is a function that
learns rule sets, one for each size, a *tier* the learners whose rule sets are equally hard to
follow. "By so many standard errors" is a z-score.
"""
