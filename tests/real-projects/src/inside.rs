//! A suite inside the sandbox: one step of a plan, through `run_terminal` of the real `belay`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    str::FromStr as _,
};

use prost_types::Timestamp;
use serde_json::{Value, json};

use crate::{
    compare::Run,
    pins::Pin,
    results, shell,
    suite::{self, SUITE},
};

/// No approvals: the suite may change anything in its copy.
const POLICY: &str = "file_write: auto\nfile_delete: auto\nterminal_commands: auto\nprotect: false\n";

/// Runs the suite in a copy of the prepared folder below `dir`, which is removed.
///
/// # Errors
/// When the execution does not complete: its own words.
pub fn run(pin: &Pin, prepared: &Path, dir: &Path, belay: &Path) -> Result<Run, String> {
    let workspace = suite::copy(prepared, &dir.join("inside"))?;
    let own = tempfile::tempdir_in(dir).map_err(|error| error.to_string())?;
    let file = |name: &str, text: &str| -> Result<PathBuf, String> {
        let path = own.path().join(name);
        fs::write(&path, text).map(|()| path).map_err(|error| format!("{name}: {error}"))
    };
    let policy = file("policy.yaml", POLICY)?;
    let plan = file("plan.json", &plan(pin).to_string())?;
    let mut command = Command::new(belay);
    command.arg("run").arg(plan).arg("--workspace").arg(&workspace).arg("--policy").arg(policy);
    command.args(["--approve", "auto", "--output", "json"]).arg("--state-dir").arg(own.path().join("state"));
    // The person's own settings must not decide.
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BELAY_")) {
        command.env_remove(name);
    }
    command.env("XDG_CONFIG_HOME", own.path().join("config"));
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{}: {error}", belay.display()))?;
    let execution: Value = serde_json::from_slice(&output.stdout).map_err(|_no_json| {
        format!("belay run: {}\n{}", output.status, shell::tail(&String::from_utf8_lossy(&output.stderr)))
    })?;
    let seconds = judge(&execution)?;
    let results = results::read(&workspace.join("results"), pin.results)?;
    suite::remove(&workspace)?;
    Ok(Run { results, seconds })
}

/// A plan with one step, whose exit code is ignored: its result files have the passed tests.
fn plan(pin: &Pin) -> Value {
    json!({
        "id": pin.name,
        "steps": [{
            "id": "suite",
            "tool": "run_terminal",
            "attempt_timeout": format!("{}s", pin.limit_seconds),
            "arguments": {"command": ["sh", "-c", SUITE, "sh", pin.run]},
        }],
    })
}

/// How long the step took, in seconds, with everything that Belay did before and after the command.
fn judge(execution: &Value) -> Result<f64, String> {
    let step = &execution["steps"][0];
    if step["state"] != "STATE_COMPLETED" {
        let said = if step["failure"].is_null() { execution } else { &step["failure"] };
        return Err(format!("the step did not complete:\n{said:#}"));
    }
    let code = &step["output"]["exit_code"];
    if *code != 0 {
        let printed = ["stdout", "stderr"].map(|stream| step["output"][stream].as_str().unwrap_or_default());
        return Err(format!("the suite ended with {code}:\n{}", shell::tail(&printed.join("\n"))));
    }
    let at = |field: &str| {
        let text = step[field].as_str().unwrap_or_default();
        Timestamp::from_str(text).map_err(|error| format!("{field} {text:?}: {error}"))
    };
    let (start, end) = (at("startTime")?, at("endTime")?);
    #[expect(clippy::cast_precision_loss, reason = "a suite takes seconds")]
    let seconds = (end.seconds - start.seconds) as f64;
    Ok(seconds + f64::from(end.nanos - start.nanos) / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_completed_suite_counts() {
        let step = |state: &str, code: u32| {
            json!({"steps": [{
                "state": state,
                "startTime": "2026-01-01T00:00:59.750Z",
                "endTime": "2026-01-01T00:01:01.250Z",
                "output": {"exit_code": code, "stdout": "", "stderr": "no such file"},
            }]})
        };
        assert!((judge(&step("STATE_COMPLETED", 0)).unwrap() - 1.5).abs() < 1e-6);
        assert!(judge(&step("STATE_COMPLETED", 127)).unwrap_err().contains("no such file"));
        assert!(judge(&step("STATE_FAILED", 0)).unwrap_err().contains("STATE_FAILED"));
    }
}
