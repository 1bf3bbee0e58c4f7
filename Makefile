# What a person would type by hand. Every target makes .venv ready first; a second call is quick.
.PHONY: help run analyze test quick format spark explore repeat oracle real lint sanitize fuzz mutations simulate soak bench guard docs dist wheels sbom clean

help:    ## this list
	@sed -n -e 's/^\([a-z]*\): .*## \(.*\)/  make \1\t\2/p' -e 's/^ *## /\t/p' Makefile | expand -t 18

CAPTURES = $(addprefix tests/data/captures/ibp-,0.10.0-a.pcap.gz 2.8-a.pcap.gz 3.9-a.pcap.gz 3.9-migration-a.pcap.gz)

run:     ## the main job: a live cluster -> a recording -> tables, checked against the controllers' journal
	@tools/setup run java
	tools/demo --out out/demo

analyze: ## captures of real clusters -> tables and a summary
	@tools/setup run java
	.venv/bin/kproto analyze $(CAPTURES) --out out/tables --overwrite

# A process that a test starts compiles kproto's Python each time where its bytecode may not be kept.
export PYTHONDONTWRITEBYTECODE =

# Property tests draw by a fresh seed, which is printed: make test SEED=n repeats one.
SEED_NOW = $(or $(SEED),$(shell date +%s))
NOT_ELSEWHERE = not spark and not java and not kafka
# One more than there are cores: a third of their time tests wait, for processes, sockets and time-outs.
WORKERS = $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
test:    ## every test that needs no Java, but for the tier `slow`; ALL=1 runs that too, as CI does
	@tools/setup test chromium tshark tmux
	@seed=$(SEED_NOW); echo "test: repeat with make test SEED=$$seed"; \
	  KPROTO_FLEET_SEED=$${KPROTO_FLEET_SEED:-$$((seed % 1000000))} HYPOTHESIS_PROFILE=$(if $(ALL),dev,quick) .venv/bin/pytest \
	  -m "$(if $(ALL),,not slow and )$(NOT_ELSEWHERE)" --ignore=tests/kafka --ignore=tests/oracle -n $(WORKERS) --dist worksteal --hypothesis-seed=$$seed

TESTS = tests/codec_ext tests/contract tests/capture tests/tables
quick:   ## a focused run within seconds: make quick TESTS="tests/cli/test_doctor.py -k baseline"
	@tools/setup test
	.venv/bin/pytest -q -x -m "not slow and $(NOT_ELSEWHERE)" $(TESTS)

format:  ## style: what ruff can mend by itself
	@tools/setup dev
	.venv/bin/ruff check --fix . && .venv/bin/ruff format .

spark:   ## the pipeline on Spark: local, a cluster of two workers, Spark Connect, object stores, kills
	@tools/setup test java
	.venv/bin/pytest tests/pipeline -m "spark and not java and not kafka" -n auto --dist loadfile

QUESTIONS = 20000
oracle:  ## both codecs against Kafka's own classes: make oracle QUESTIONS=200000 asks more
	@tools/setup test java maven
	KPROTO_ORACLE_QUESTIONS=$(QUESTIONS) .venv/bin/pytest tests/oracle tests/pipeline/test_iceberg.py -m java

FORM = long
BROKERS = $(if $(filter long,$(FORM)),200,50)
real:    ## both ends against a real Kafka 3.9.1 with ZooKeeper; FORM=short: fewer protocol versions, shorter outages
	@tools/setup test java maven nftables
	@# 75: sessions expired because the machine stood still, which is said; what failed is asked once more.
	export KPROTO_FLEET=$(BROKERS) KPROTO_FORM=$(FORM); .venv/bin/pytest tests/kafka -m kafka \
	|| { [ $$? = 75 ] && .venv/bin/pytest tests/kafka -m kafka --last-failed; }

lint: export PATH := $(CURDIR)/.venv/bin:$(PATH)
lint:    ## style, types, stubs, import contracts
	@tools/setup dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/cython-lint kproto/_codec.pyx kproto/_codec.pxd kproto/_cython/*.pxi kproto/capture/*.pxd kproto/logs/*.pxd kproto/tables/*.pxd channel/*.pxd channel/*/*.pxd channel/*/*.pyx
	.venv/bin/mypy
	.venv/bin/pyright
	.venv/bin/python tests/public_api/completeness.py
	MYPYPATH=. .venv/bin/python -m mypy.stubtest --allowlist tests/codec_ext/stubtest-allowlist.txt kproto._codec
	.venv/bin/lint-imports

sanitize: ## the extensions under AddressSanitizer and UndefinedBehaviourSanitizer
	@tools/setup test
	tools/sanitize

FUZZ_SECONDS = 60
fuzz:    ## codecs, columns, framing, captures, logs: a minute for each target; led by coverage where atheris can be had
	@tools/setup test
	@.venv/bin/python -c "import atheris" 2>/dev/null || .venv/bin/pip install -q -c constraints.txt atheris \
	  || echo "fuzz: no atheris for this Python; bending golden messages at random instead"
	cd tests && for target in $$(../.venv/bin/python -m fuzz.run --list); do \
	  ../.venv/bin/python -m fuzz.run $$target --seconds $(FUZZ_SECONDS) || exit 1; done

explore: ## the property tests with a fresh seed, which is printed; make explore SEED=n repeats one
	@tools/setup test java
	@seed=$(SEED_NOW); echo "explore: repeat with make explore SEED=$$seed"; HYPOTHESIS_PROFILE=explore \
	  .venv/bin/pytest -q -m "hypothesis and not java and not kafka" -n auto --dist loadfile --hypothesis-seed=$$seed

SINCE = HEAD~1
TIMES = 20
UNDER = tests
repeat:  ## the tests that have changed since the commit SINCE, TIMES times with every core busy and TIMES times on one core;
         ## SINCE=all for every test (UNDER="tests/cli ..." for some); BUDGET=4 ends after four minutes; SEED=n: the same order
	@tools/setup test chromium tshark tmux
	.venv/bin/python tools/repeat_changed.py --since $(SINCE) --times $(TIMES) --under $(UNDER) $(if $(BUDGET),--budget $(BUDGET)) $(if $(SEED),--seed $(SEED))

MUTATIONS = --count 200
mutations: ## mutants drawn by a fresh seed and known breakages, to see their tests go red; MUTATIONS=--known in minutes
	@tools/setup test java maven
	.venv/bin/python tests/mutations/run.py $(MUTATIONS)

SEEDS = 1000
FIRST = 0
SIMULATE = $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --first $(FIRST)) $(if $(FRESH),--fresh $(FRESH)) $(if $(CAPTURE),--capture $(CAPTURE)) \
  $(if $(KIND),--kind $(KIND)) $(if $(BREAKAGES),--breakages) $(if $(MUTANTS),--mutants $(MUTANTS))
simulate: ## the channel in virtual time, with faults drawn by seed; SEED=n repeats one, CAPTURE=FILE writes its frames,
          ## BREAKAGES=1 puts known faults back and finds each, MUTANTS=20 breaks what is drawn, KIND=election elects controllers
	@tools/setup test
	.venv/bin/python tests/simulation/run.py $(SIMULATE)

MINUTES = 60
SOAK = --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(REAL),--real) $(if $(CONTROL),--control)
soak:    ## the real thing for MINUTES, with faults drawn by a seed that is printed; SEED=n draws those of an earlier run;
         ## REAL=1 with three brokers of Kafka and their clients, CONTROL=1 the same led by Kafka's own controller
	@tools/setup test java maven nftables
	.venv/bin/python tests/soak/run.py $(SOAK)

BENCHES =
bench: export PATH := $(CURDIR)/.venv/bin:$(PATH)
bench:   ## all figures of docs/figures.md; QUICK=1 tries every program, BENCHES="ratios tap_ratios" measures some
	@tools/setup bench java maven tshark
	.venv/bin/python benches/everything.py $(if $(QUICK),--quick) $(BENCHES)

guard:   ## codec and captures beside the last release, or 30 commits before, by turns: no door may lose a fifth of its speed
	@tools/setup test
	.venv/bin/python benches/guard.py

docs: export PATH := $(CURDIR)/.venv/bin:$(PATH)
docs:    ## the documentation site -> out/docs; warnings are errors
	@tools/setup docs
	.venv/bin/sphinx-build -q -W --keep-going -b html docs out/docs
	@echo "out/docs/index.html"

dist:    ## the wheel of the present Python, as make wheels makes it -> an empty environment -> smoke test
	@tools/setup dev
	tools/check-dist

wheels:  ## a wheel for every CPython found, repaired and checked -> out/wheels; PYTHONS="python3.12 ..." names them
	@tools/setup run
	tools/wheels

sbom:    ## what an installation with every extra consists of -> out/wheels/kproto.cdx.json (CycloneDX)
	@tools/setup run
	@ls out/wheels/*.whl >/dev/null 2>&1 || PYTHONS=.venv/bin/python tools/wheels
	tools/sbom "$$(ls out/wheels/*.whl | head -n 1)" out/wheels/kproto.cdx.json

clean:
	rm -rf .venv build dist out *.egg-info
	find kproto channel -name '*.so' -delete -o -name '*.c' -delete
