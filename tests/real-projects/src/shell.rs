//! Programs that this one starts.

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

/// The last lines of what a failed program printed: enough to say why.
const TAIL_LINES: usize = 12;

/// Whether a program is on PATH.
#[must_use]
pub fn has(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Runs a program to its end.
///
/// # Errors
/// When it cannot be started or ends with another code than 0: its name and the last lines that it printed.
pub fn run(command: &mut Command) -> Result<String, String> {
    let name = Path::new(command.get_program()).display().to_string();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let printed = [output.stdout, output.stderr].concat();
    Err(format!("{name}: {}\n{}", output.status, tail(&String::from_utf8_lossy(&printed))))
}

/// The last lines of a text.
#[must_use]
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_was_printed() {
        assert_eq!(run(Command::new("sh").args(["-c", "echo good"])).unwrap(), "good\n");
        let error = run(Command::new("sh").args(["-c", "echo bad >&2; exit 3"])).unwrap_err();
        assert!(error.contains("bad") && error.contains('3'), "{error}");
        assert!(run(&mut Command::new("/no/such/program")).is_err());
        assert!(has("sh") && !has("no-such-program"));
    }
}
