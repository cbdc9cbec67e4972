"""Figures of running processes for other tools.

openmetrics    for a scraper, such as Prometheus
pprof_page     heap profiles beside that, as Go programs serve theirs
profile_files  a heap profile as a file
"""
