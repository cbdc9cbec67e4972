"""Gates for continuous integration: what must hold of a program's figures, and whether it does.

decision    what was decided of one figure, and why
formats     decisions as JUnit XML, as GitHub's annotations, as Markdown
condition   bounds as a user writes them
verdicts    the conditions of a comparison, judged by its verdicts
heap        what a program does with its heap, as a file
orphans     whether a program has left a process behind
against     that of now against the one that was saved
"""
