"""The speed of the whole system, as ratios against limits of the same machine in the same run.

Started by `bin/bench`; pytest collects nothing here, because a test never depends on time.
"""
