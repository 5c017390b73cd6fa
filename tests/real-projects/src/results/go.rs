//! `go test -json`: one event a line.

use serde::Deserialize;

use super::outcome::TestOutcome;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Event {
    action: String,
    #[serde(default)]
    package: String,
    test: Option<String>,
}

/// Reads the end of each test. A package that does not build, or fails outside of any test, counts as a failed test of its own name.
pub(super) fn parse(text: &str) -> Result<Vec<(String, TestOutcome)>, String> {
    let mut tests = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let event: Event = serde_json::from_str(line).map_err(|error| format!("line {number}: {error}"))?;
        let ended = match event.action.as_str() {
            "pass" => TestOutcome::Passed,
            "fail" => TestOutcome::Failed,
            "skip" => TestOutcome::Skipped,
            _ => continue,
        };
        match event.test {
            Some(test) => tests.push((format!("{} {test}", event.package), ended)),
            None if ended == TestOutcome::Failed => tests.push((event.package, ended)),
            None => {}
        }
    }
    Ok(tests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_tests_are_read_and_packages_count_only_when_they_fail() {
        let text = r#"{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- PASS: TestA\n"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0.1}
{"Action":"fail","Package":"p","Test":"TestB/sub","Elapsed":0}
{"Action":"skip","Package":"p","Test":"TestC","Elapsed":0}
{"Action":"pass","Package":"p"}
{"Action":"fail","Package":"q"}
"#;
        let named = |name: &str, ended| (name.to_owned(), ended);
        assert_eq!(
            parse(text).unwrap(),
            [
                named("p TestA", TestOutcome::Passed),
                named("p TestB/sub", TestOutcome::Failed),
                named("p TestC", TestOutcome::Skipped),
                named("q", TestOutcome::Failed),
            ]
        );
        assert!(parse("go: no module\n").unwrap_err().starts_with("line 1"));
    }
}
