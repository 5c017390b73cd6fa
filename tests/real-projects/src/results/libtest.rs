//! Output of `cargo test`: which program runs, then a line for each of its tests.

use super::outcome::TestOutcome;

/// Reads the lines. Tests are named by their program's source file and their own path.
pub(super) fn parse(text: &str) -> Vec<(String, TestOutcome)> {
    let mut program = String::new();
    let mut tests = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        if let Some(running) = line.strip_prefix("Running ") {
            // `Running unittests src/lib.rs (target/debug/deps/x-0123)`: the hash differs from build to build.
            program = running.split(" (").next().unwrap_or(running).to_owned();
        } else if let Some(documented) = line.strip_prefix("Doc-tests ") {
            program = format!("doc {documented}");
        } else if let Some((name, ended)) = line.strip_prefix("test ").and_then(test) {
            tests.push((format!("{program} {name}"), ended));
        }
    }
    tests
}

fn test(line: &str) -> Option<(&str, TestOutcome)> {
    let (name, word) = line.rsplit_once(" ... ")?;
    let ended = match word.split(',').next()? {
        "ok" => TestOutcome::Passed,
        "FAILED" => TestOutcome::Failed,
        "ignored" => TestOutcome::Skipped,
        _ => return None,
    };
    Some((name, ended))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_named_by_their_program() {
        let text = "   Compiling x v0.1.0
     Running unittests src/lib.rs (target/debug/deps/x-5f)

running 3 tests
test a::b ... ok
test a::c ... FAILED
test a::d - should panic ... ok
test e ... ignored, needs a terminal
test result: FAILED. 1 passed; 1 failed; 1 ignored
   Doc-tests x
test src/lib.rs - X (line 3) - compile ... ok
";
        let named = |name: &str, ended| (name.to_owned(), ended);
        assert_eq!(
            parse(text),
            [
                named("unittests src/lib.rs a::b", TestOutcome::Passed),
                named("unittests src/lib.rs a::c", TestOutcome::Failed),
                named("unittests src/lib.rs a::d - should panic", TestOutcome::Passed),
                named("unittests src/lib.rs e", TestOutcome::Skipped),
                named("doc x src/lib.rs - X (line 3) - compile", TestOutcome::Passed),
            ]
        );
    }
}
