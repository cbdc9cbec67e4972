"""From a program to the line that deploys: what `heapfit fit` does, step by step.

facts        what is known of the program, and conditions on that
look         find that out: from its file, from a few runs, from a recording
candidates   which allocators and settings are worth trying, each with the reason
search       measure them: fewer and fewer in more and more blocks, then the last ones anew
answer       what is chosen, by the verdict, and what it costs
deploy       the files that put it into use

Each step that measures is an ordinary study in a folder of its own, which goes on by itself.
"""
