//! Damaged plans, conditions and templates, from a fixed seed and, when asked, from a new one: nothing panics, everything ends within its limits,
//! and every refusal says where.

mod allocator;
mod documents;
mod expressions;
mod mutate;

use std::{
    env,
    hash::{BuildHasher, Hasher, RandomState},
};

use proptest::{
    strategy::Strategy,
    test_runner::{Config, RngSeed, TestCaseError, TestCaseResult, TestRunner},
};

/// The seed that every run has.
const FIXED: u64 = 20_261_123;

/// Tries the cases of the fixed seed; with `BELAY_FUZZ_NEW=1`, as many of a new one too. `BELAY_FUZZ_SEED` repeats one, `BELAY_FUZZ_CASES` sets how many.
fn check<S: Strategy>(name: &str, cases: u32, strategy: S, test: impl Fn(S::Value) -> TestCaseResult) {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let cases = number("BELAY_FUZZ_CASES").and_then(|cases| u32::try_from(cases).ok()).unwrap_or(cases);
    let seeds = match number("BELAY_FUZZ_SEED") {
        Some(seed) => vec![seed],
        None if number("BELAY_FUZZ_NEW").unwrap_or(0) > 0 => vec![FIXED, RandomState::new().build_hasher().finish()],
        None => vec![FIXED],
    };
    for seed in seeds {
        println!("{name}: seed {seed}, {cases} cases");
        let config = Config {
            cases,
            rng_seed: RngSeed::Fixed(seed),
            failure_persistence: None,
            max_shrink_iters: 4_000,
            ..Config::default()
        };
        if let Err(error) = TestRunner::new(config).run(&strategy, &test) {
            panic!(
                "{error}\nagain: BELAY_FUZZ_SEED={seed} BELAY_FUZZ_CASES={cases} cargo test -p belay-plan-tests fuzz::{name}"
            );
        }
    }
}

/// A case has failed because of this.
fn fail<T>(why: String) -> Result<T, TestCaseError> {
    Err(TestCaseError::fail(why))
}
