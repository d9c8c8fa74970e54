import os

# Two test processes share two cores; more threads each would only fight.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from hypothesis import settings

# The first call of compiled or lazily loaded code takes its time; how long a case takes is no promise of ours.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
