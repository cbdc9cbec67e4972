"""One sentence of advice for each section of a profile.

It names a feature of heapfit, or says that none is needed. A rule fires only on figures that are in
the profile, past a threshold that has a name and a reason; where the figures do not decide, the
sentence says what would. What the features do, and what they cost, is in docs/tuning.md,
docs/contexts.md and docs/pools.md. Within a section the first rule that fits decides.
"""
