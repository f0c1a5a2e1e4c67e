"""`make bench`: every benchmark, one after the other. Each compares side by side in one run and prints ratios."""

from benchmarks import image, key_check, launchers, startup

for benchmark in (startup, key_check, launchers, image):
    print(f"\n== {benchmark.__name__.rpartition('.')[2]}", flush=True)
    benchmark.run()
