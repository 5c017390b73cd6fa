# The everyday commands; `just` alone lists them. Each is one line of shell that works without just.

[private]
default:
    @just --list --unsorted

# build and run the `belay` command: just belay run docs/examples/quickstart.yaml
belay *arguments:
    cargo run -- {{ arguments }}

# every test, or what `cargo test` makes of the arguments: just test -p belay-plan
test *arguments:
    tests/run {{ arguments }}

# all that has to hold before a change lands
ci:
    .ci/run

format:
    cargo fmt --all

lint:
    cargo clippy --workspace --all-targets -- -D warnings

# the linter's opinion of the contract
lint-contract:
    cd proto && npx --yes @bufbuild/buf@1.75.0 lint

# write which tests show which requirement into docs/requirements.md
requirements:
    BELAY_UPDATE=1 cargo test -p belay-architecture-tests requirements

# more seeds than the tests run: just simulate 5000
simulate seeds="1000":
    BELAY_SIM_SEEDS={{ seeds }} cargo test -p belay-simulation --test simulation

# one seed again, with everything that happened: just replay 17
replay seed:
    BELAY_SIM_SEED={{ seed }} cargo test -p belay-simulation --test simulation

# how fast it is, beside a bare floor: see tests/bench/README.md
bench *arguments:
    cargo build --release -p belay-cli -p belay-bench
    cargo run --release -p belay-bench -- {{ arguments }}

# test suites of public projects, outside the sandbox and inside: just real-projects tornado
real-projects *arguments:
    tests/real-projects/run {{ arguments }}
