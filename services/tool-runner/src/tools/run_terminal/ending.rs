//! Maps the end of a command to the result of its call. Pure.

use std::{io, time::Duration};

use belay_proto::{facts, v1::ErrorClass};
use belay_reasons as reasons;
use belay_sandbox::{DiskLimit, LaunchError, Outcome, Output, Status, Unit, WriteBound};
use serde_json::{Map, Value, json};

use super::{
    outputs,
    streams::{is_lossy, text},
};
use crate::{
    CommandSettings, ToolFailure, ToolResult,
    calls::timed_out,
    disk_errors::disk_reason,
    tools::files::{invalid, not_found, stopped, wrong_type},
};

/// SIGXCPU and SIGXFSZ, whose limits the sandbox sets; the numbers are the same on all supported architectures.
const OUT_OF_CPU: i32 = 24;
const FILE_TOO_LARGE: i32 = 25;

/// The conditions that a command ran under.
pub(crate) struct RunConditions {
    /// Whether an exit code other than 0 is a failure.
    pub(crate) check: bool,
    pub(crate) limit: Duration,
    /// Whether it had its own loopback interface.
    pub(crate) loopback: bool,
    /// Whether it had a network beyond that.
    pub(crate) has_network: bool,
    /// The reason why it may have failed on its network, after `it`.
    pub(crate) refusal: Option<String>,
}

/// The result of a command, or its failure. Every failure of a call also carries the end of the output.
/// `outputs`: the content of the file for its outputs.
pub(crate) fn judge(
    program: &str,
    outcome: Outcome,
    (output, outputs): (&Output, &[u8]),
    ran: &RunConditions,
) -> ToolResult {
    let RunConditions { check, limit, loopback, has_network, ref refusal } = *ran;
    let killed =
        |why: &str| ToolFailure::new(ErrorClass::Crash, reasons::COMMAND_KILLED, format!("`{program}` {why}."));
    match outcome.status {
        Status::Exited(code) if code == 0 || !check => {
            let mut result = json!({
                "exit_code": code,
                "stdout": text(&output.stdout),
                "stderr": text(&output.stderr),
                "stdout_bytes": output.stdout.total,
                "stderr_bytes": output.stderr.total,
                "truncated": output.stdout.dropped() + output.stderr.dropped() > 0,
            });
            // Those of a program that failed may be of half of what it should have done.
            if code == 0 {
                let outputs = outputs_of(program, outputs)?;
                if !outputs.is_empty() {
                    result["outputs"] = outputs.into();
                }
            }
            Ok(with_lossy(output, result))
        }
        // The exit codes by which shells report that a program could not be run.
        Status::Exited(code @ (126 | 127)) => {
            let why = if code == 126 { "is not executable" } else { "was not found" };
            let hint = format!("a program that it tried to run {why}");
            let message = format!("`{program}` exited with code {code}: {hint}.");
            Err(ToolFailure::new(ErrorClass::AgentUnavailable, reasons::PROGRAM_NOT_FOUND, message)
                .with(facts::EXIT_CODE, code)
                .with(facts::HINT, hint))
        }
        // 128 + SIGKILL, by which a shell reports a killed child.
        Status::Exited(137) => {
            let hint = "a process it started was killed, perhaps because memory ran out";
            let failure = killed(&format!("exited with code 137: {hint}"));
            Err(failure.with(facts::EXIT_CODE, 137).with(facts::HINT, hint))
        }
        Status::Exited(code) => {
            let hint = match has_network {
                true => refusal.clone(),
                false => wanted_network(output).then(|| no_network(loopback)),
            };
            let more = hint.as_ref().map(|hint| format!(". It {hint}")).unwrap_or_default();
            let message = format!("`{program}` exited with code {code}{more}.");
            let failure = ToolFailure::new(ErrorClass::Transient, reasons::COMMAND_FAILED, message);
            let failure = failure.with(facts::EXIT_CODE, code);
            Err(match hint {
                Some(hint) => failure.with(facts::HINT, format!("it {hint}")),
                None => failure,
            })
        }
        Status::Signalled(signal @ OUT_OF_CPU) => {
            let failure = killed("exceeded its CPU time limit (`commands.limits.cpu_time`)");
            Err(failure.with(facts::SIGNAL, signal).with(facts::SETTING, "commands.limits.cpu_time"))
        }
        Status::Signalled(signal @ FILE_TOO_LARGE) => {
            let why = "exceeded the maximum file size (`commands.limits.file_size`, or the size of the place that it wrote to)";
            Err(killed(why).with(facts::SIGNAL, signal).with(facts::SETTING, "commands.limits.file_size"))
        }
        Status::Signalled(signal) => {
            Err(killed(&format!("was terminated by signal {signal}")).with(facts::SIGNAL, signal))
        }
        Status::TimedOut => Err(timed_out(limit)),
        Status::DiskLimit(limit) => Err(over_disk_limit(program, limit)),
        Status::Killed => Err(stopped()),
        Status::Lost => {
            Err(killed("was killed together with its sandbox, perhaps by the kernel because memory ran out"))
        }
    }
}

/// The outputs that a program has written to the file for them.
///
/// # Errors
/// OUTPUTS_REFUSED, when the file cannot be read.
pub(crate) fn outputs_of(program: &str, written: &[u8]) -> Result<Map<String, Value>, ToolFailure> {
    if written.is_empty() {
        return Ok(Map::new());
    }
    outputs::parse(written).map_err(|why| {
        let message = format!("The file of the outputs of `{program}` (`$BELAY_OUTPUT`) {why}.");
        ToolFailure::new(ErrorClass::InvalidResult, reasons::OUTPUTS_REFUSED, message)
    })
}

/// The result with what is said only of output that is not all UTF-8.
fn with_lossy(output: &Output, mut result: serde_json::Value) -> serde_json::Value {
    for (name, stream) in [("stdout_lossy", &output.stdout), ("stderr_lossy", &output.stderr)] {
        if is_lossy(stream) {
            result[name] = true.into();
        }
    }
    result
}

/// The failure of a command that exceeded a bound on the disk. It names the setting that raises the bound.
fn over_disk_limit(program: &str, DiskLimit { bound, unit, limit, found }: DiskLimit) -> ToolFailure {
    let over = |message: String, setting: String| {
        ToolFailure::new(ErrorClass::Transient, reasons::DISK_LIMIT, message)
            .with(facts::LIMIT, limit)
            .with(facts::FOUND, found)
            .with(facts::UNIT, if unit == Unit::Bytes { "bytes" } else { "files" })
            .with(facts::SETTING, setting)
    };
    let (place, section) = match bound {
        WriteBound::View => ("the changes in its view of the workspace", "view"),
        WriteBound::Tmp => ("/tmp", "scratch"),
        WriteBound::Home => ("its home", "scratch"),
        WriteBound::Reserve => {
            let (amount, key) = match unit {
                Unit::Bytes => (format!("{} free; commands must leave {}", size(found), size(limit)), "size"),
                Unit::Inodes => (format!("{found} inodes free; commands must leave {limit}"), "files"),
            };
            let message = format!(
                "`{program}` was terminated because the disk is nearly full: {amount} (`commands.reserve.{key}`). Of the running \
                 commands, this one used the most space."
            );
            // A retry waits until there is space, which another program may have used up.
            return over(message, format!("commands.reserve.{key}"));
        }
    };
    let (amount, key) = match (unit, bound) {
        (Unit::Bytes, WriteBound::Tmp) => (format!("{}; the limit is {}", size(found), size(limit)), "tmp"),
        (Unit::Bytes, WriteBound::Home) => (format!("{}; the limit is {}", size(found), size(limit)), "home"),
        (Unit::Bytes, _) => (format!("{}; the limit is {}", size(found), size(limit)), "size"),
        (Unit::Inodes, _) => (format!("{found} files and directories; the limit is {limit}"), "files"),
    };
    let message = format!(
        "`{program}` was terminated because {place} grew to {amount}. To raise the limit, set `commands.{section}.{key}` in the \
         operator's settings."
    );
    over(message, format!("commands.{section}.{key}"))
}

/// Formats bytes in the largest unit that fits.
fn size(bytes: u64) -> String {
    let unit = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)].into_iter().find(|(_, unit)| bytes >= *unit);
    match unit {
        // Rounded up, so that a size above a limit never reads as equal to it.
        Some((name, unit)) => {
            let tenths = (u128::from(bytes) * 10).div_ceil(u128::from(unit));
            match tenths % 10 {
                0 => format!("{} {name}", tenths / 10),
                tenth => format!("{}.{tenth} {name}", tenths / 10),
            }
        }
        None => format!("{bytes} bytes"),
    }
}

/// The hint for a command that seems to have failed without a network, after `it`.
fn no_network(loopback: bool) -> String {
    let had = match loopback {
        true => "had no network except its own loopback interface",
        false => "had no network, not even a loopback interface",
    };
    format!(
        "seems to need the network, but it {had}: add `network: PROFILE` to the step (`belay network list` has the profiles), or put \
         what it downloads into the workspace, or into a cache that the operator's settings make visible"
    )
}

/// Messages of resolvers, package managers and git that cannot reach the network or run in offline mode.
const NETWORK_ERRORS: [&str; 20] = [
    "Name or service not known",
    "Temporary failure in name resolution",
    "nodename nor servname provided",
    "Could not resolve host",
    "could not resolve host",
    "Couldn't resolve host",
    "Unknown host",
    "UnknownHostException",
    "Network is unreachable",
    "getaddrinfo ENOTFOUND",
    "getaddrinfo EAI_AGAIN",
    "no such host",
    "ENOTCACHED",
    "GOPROXY=off",
    "offline mode",
    "--offline was specified",
    "could not be found in registry index",
    "Could not transfer artifact",
    "No plugin found for prefix",
    "Could not resolve '",
];

/// Whether the output suggests that the command failed without a network.
fn wanted_network(output: &Output) -> bool {
    [&output.stderr, &output.stdout].into_iter().any(|stream| {
        let said = text(stream);
        NETWORK_ERRORS.iter().any(|error| said.contains(error))
    })
}

/// The failure of a command whose end could not be observed.
pub(crate) fn lost(program: &str, why: &str) -> ToolFailure {
    ToolFailure::new(
        ErrorClass::Crash,
        reasons::COMMAND_KILLED,
        format!("Lost track of `{program}` while it ran: {why}."),
    )
}

pub(super) fn unavailable(why: &str) -> ToolFailure {
    ToolFailure::new(ErrorClass::SandboxViolation, reasons::SANDBOX_UNAVAILABLE, format!("Commands cannot run: {why}."))
}

pub(super) fn reserved_variable(name: &str) -> String {
    belay_sandbox::reserved_variable_problem(name)
}

pub(super) fn no_cache(error: &io::Error) -> ToolFailure {
    unavailable(&format!("cannot create a cache of the workspace: {error}"))
}

/// The failure of a command that was not started.
pub(super) fn not_started(error: LaunchError, limit: Duration, settings: &CommandSettings) -> ToolFailure {
    match &error {
        LaunchError::Spec { field, .. } if field == "timeout" => timed_out(limit),
        // The runner sets the mount, not the call.
        LaunchError::Spec { field, .. } if field.starts_with("workspace") => {
            ToolFailure::new(ErrorClass::Internal, reasons::INTERNAL, format!("{error}. This is a bug in Belay."))
        }
        // The operator sets the mounts.
        LaunchError::Spec { field, problem } if field.starts_with("mounts") => unavailable(&format!(
            "a source of `commands.read_only` or `commands.caches`, or the `config_dir` of an agent, in the operator's settings cannot be shown to commands: {problem}"
        )),
        // The runner and the operator set it, not the call.
        LaunchError::Spec { field, .. } if field.starts_with("network") => {
            ToolFailure::new(ErrorClass::Internal, reasons::INTERNAL, format!("{error}. This is a bug in Belay."))
        }
        LaunchError::Spec { field, problem } => invalid(format!("arguments/{}: {problem}", argument(field))),
        LaunchError::ProgramNotFound { program, .. } => {
            let why = settings.missing(program).unwrap_or_else(|| error.to_string());
            ToolFailure::new(
                ErrorClass::AgentUnavailable,
                reasons::PROGRAM_NOT_FOUND,
                format!("arguments/command/0: {why}"),
            )
        }
        LaunchError::ProgramNotExecutable { .. } => ToolFailure::new(
            ErrorClass::AgentUnavailable,
            reasons::PROGRAM_NOT_FOUND,
            format!("arguments/command/0: {error}"),
        ),
        LaunchError::WorkingDirectory { source, .. } => {
            let message = format!("arguments/cwd: {error}");
            if source.kind() == io::ErrorKind::NotFound { not_found(message) } else { wrong_type(message) }
        }
        LaunchError::DiskFull { place, limit } => {
            let (found, wanted, key) = match limit.unit {
                Unit::Bytes => (size(limit.found), size(limit.limit), "size"),
                Unit::Inodes => (format!("{} inodes", limit.found), limit.limit.to_string(), "files"),
            };
            let message = format!(
                "No command is started while the disk of {} has only {found} free; commands must leave {wanted} (`commands.reserve.{key}`).",
                place.display()
            );
            ToolFailure::new(ErrorClass::Transient, reasons::WORKSPACE_FULL, message)
        }
        LaunchError::Layer { source, .. } => {
            if error.reached_limit().is_none()
                && let Some(reason) = disk_reason(source)
            {
                // The layer works; the disk that it is mounted on does not take it.
                return ToolFailure {
                    class: ErrorClass::Transient,
                    reason: reason.into(),
                    ..unavailable(&error.to_string())
                };
            }
            if error.is_lost() {
                let message =
                    format!("The command was not started, because of other processes on this machine: {error}.");
                return ToolFailure::new(ErrorClass::Transient, reasons::SANDBOX_UNAVAILABLE, message);
            }
            unavailable(&error.to_string())
        }
        LaunchError::LauncherLost { program } => lost(program, &error.to_string()),
        LaunchError::NotReady => unavailable(&error.to_string()),
    }
}

/// The argument that corresponds to a field of the sandbox's spec, as a JSON pointer without its first slash.
fn argument(field: &str) -> String {
    match field.split_once(['.', '[']) {
        None if field == "program" => "command/0".to_owned(),
        Some(("args", n)) => {
            let n = n.trim_end_matches(']').parse().map_or(0, |n: usize| n + 1);
            format!("command/{n}")
        }
        Some((whole, part)) => format!("{whole}/{part}"),
        None => field.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use belay_defects::{Defect, assert_attack_needs};
    use belay_sandbox::{Layer, Usage};

    use super::*;

    fn judged(status: Status, stderr: &str, check: bool) -> ToolResult {
        let mut output = Output::default();
        output.stderr.head = stderr.into();
        output.stderr.total = stderr.len() as u64;
        let ran =
            RunConditions { check, limit: Duration::from_secs(9), loopback: true, has_network: false, refusal: None };
        judge("make", Outcome { status, usage: Usage::default() }, (&output, b""), &ran)
    }

    fn failure(status: Status) -> (ErrorClass, String) {
        let failure = judged(status, "", true).unwrap_err();
        (failure.class, failure.reason)
    }

    /// S1-05, S1-08, S1-09, S2-FR-047.
    #[test]
    fn each_end_has_its_class() {
        let pair = |class, reason: &str| (class, reason.to_owned());
        assert_eq!(failure(Status::Exited(1)), pair(ErrorClass::Transient, "COMMAND_FAILED"));
        for code in [126, 127] {
            assert_eq!(failure(Status::Exited(code)), pair(ErrorClass::AgentUnavailable, "PROGRAM_NOT_FOUND"));
        }
        for status in [Status::Exited(137), Status::Signalled(9), Status::Signalled(25), Status::Lost] {
            assert_eq!(failure(status), pair(ErrorClass::Crash, "COMMAND_KILLED"), "{status:?}");
        }
        assert_eq!(failure(Status::TimedOut), pair(ErrorClass::Timeout, "TIMEOUT"));
        assert_eq!(failure(Status::Killed), pair(ErrorClass::Cancelled, "CANCELLED"));
    }

    /// Programs read what happened without parsing sentences.
    #[test]
    fn each_end_has_its_facts() {
        let told = |status| {
            let failure = judged(status, "", true).unwrap_err();
            failure.metadata.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(told(Status::Exited(101)), "exit_code=101");
        assert_eq!(told(Status::Exited(127)), "exit_code=127 hint=a program that it tried to run was not found");
        assert_eq!(told(Status::Signalled(9)), "signal=9");
        assert_eq!(told(Status::Signalled(24)), "setting=commands.limits.cpu_time signal=24");
        assert_eq!(told(Status::TimedOut), "limit=9 setting=attempt_timeout unit=seconds");
        let limit = DiskLimit { bound: WriteBound::Tmp, unit: Unit::Bytes, limit: 4096, found: 8192 };
        let expected = "found=8192 limit=4096 setting=commands.scratch.tmp unit=bytes";
        assert_eq!(told(Status::DiskLimit(limit)), expected);
        let offline = judged(Status::Exited(1), "Could not resolve host: x", true).unwrap_err();
        assert!(offline.metadata[facts::HINT].starts_with("it seems to need the network"), "{offline:?}");
    }

    #[test]
    fn a_failure_without_network_gives_a_hint() {
        let outputs = [
            "curl: (6) Could not resolve host: example.org",
            "npm error code ENOTCACHED",
            "go: golang.org/x/text@v0.3.0: module lookup disabled by GOPROXY=off",
            "As a reminder, you're using offline mode (--offline) which can sometimes cause surprising resolution failures",
            "NewConnectionError('Failed to establish a new connection: [Errno -2] Name or service not known')",
            "[ERROR] No plugin found for prefix 'dependency' in the current project and in the plugin groups",
            "Err:1 http://deb.debian.org/debian bookworm-updates InRelease\n  Could not resolve 'deb.debian.org'",
        ];
        for output in outputs {
            let message = judged(Status::Exited(1), output, true).unwrap_err().message;
            assert!(message.contains("need the network, but it had no network except its own loopback"), "{message}");
        }
        let other = judged(Status::Exited(1), "error: expected `;`", true).unwrap_err().message;
        assert!(!other.contains("network"), "{other}");
    }

    #[test]
    fn a_disk_limit_names_its_setting() {
        let failed = |bound, unit, limit, found| {
            judged(Status::DiskLimit(DiskLimit { bound, unit, limit, found }), "", true).unwrap_err()
        };
        for (bound, unit, setting) in [
            (WriteBound::View, Unit::Bytes, "commands.view.size"),
            (WriteBound::View, Unit::Inodes, "commands.view.files"),
            (WriteBound::Tmp, Unit::Bytes, "commands.scratch.tmp"),
            (WriteBound::Home, Unit::Bytes, "commands.scratch.home"),
            (WriteBound::Home, Unit::Inodes, "commands.scratch.files"),
        ] {
            let failure = failed(bound, unit, 8 << 20, (8 << 20) + 1);
            assert_eq!((failure.class, failure.reason.as_str()), (ErrorClass::Transient, reasons::DISK_LIMIT));
            assert!(failure.message.contains(setting), "{failure:?}");
            let amount = if unit == Unit::Bytes { "8.1 MiB; the limit is 8 MiB" } else { "8388609 files" };
            assert!(failure.message.contains(amount), "{failure:?}");
        }
        let failure = failed(WriteBound::Reserve, Unit::Bytes, 1 << 30, 1000 << 20);
        assert_eq!((failure.class, failure.reason.as_str()), (ErrorClass::Transient, reasons::DISK_LIMIT));
        assert!(failure.message.contains("1000 MiB free; commands must leave 1 GiB"), "{failure:?}");
        assert!(failure.message.contains("commands.reserve.size"), "{failure:?}");
    }

    #[test]
    fn a_command_without_disk_space_is_retried() {
        let limit = DiskLimit { bound: WriteBound::Reserve, unit: Unit::Inodes, limit: 10_000, found: 7 };
        let refused = LaunchError::DiskFull { place: "/w/.belay/views/1".into(), limit };
        let refused = not_started(refused, Duration::from_secs(9), &CommandSettings::default());
        assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::Transient, reasons::WORKSPACE_FULL));
        assert!(refused.message.contains("only 7 inodes free") && refused.message.contains("commands.reserve.files"));
    }

    #[test]
    fn an_exit_code_is_a_result_unless_it_is_checked() {
        for code in [1, 127, 137] {
            assert_eq!(judged(Status::Exited(code), "oh", false).unwrap()["exit_code"], code);
        }
        assert!(judged(Status::Signalled(11), "", false).is_err(), "a crash has no result");
    }

    #[test]
    fn an_invalid_spec_names_the_argument() {
        let settings = CommandSettings::default();
        let refused = |error| not_started(error, Duration::from_secs(9), &settings);
        let spec = |field: &str| LaunchError::Spec { field: field.into(), problem: "is odd".into() };
        for (field, argument) in [
            ("program", "command/0"),
            ("args[0]", "command/1"),
            ("args[12]", "command/13"),
            ("env.LD_X", "env/LD_X"),
            ("cwd", "cwd"),
        ] {
            assert_eq!(refused(spec(field)).message, format!("arguments/{argument}: is odd"));
        }
        assert_eq!(refused(spec("timeout")).reason, "TIMEOUT");
        let mount = refused(spec("mounts"));
        assert_eq!(mount.reason, "SANDBOX_UNAVAILABLE");
        assert!(mount.message.contains("`commands.read_only`"), "{mount:?}");
        assert_eq!(refused(spec("workspace.staging")).reason, "INTERNAL");
    }

    // B-10.
    #[test]
    fn a_missing_layer_is_named_with_its_fix() {
        let layer = |error| LaunchError::Layer {
            layer: Layer::Landlock,
            doing: "making the ruleset".into(),
            source: io::Error::from_raw_os_error(error),
        };
        let refused = not_started(layer(95), Duration::from_secs(9), &CommandSettings::default());
        assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::SandboxViolation, "SANDBOX_UNAVAILABLE"));
        assert!(refused.message.contains("`landlock`") && refused.message.contains(Layer::Landlock.fix()));
        let full = not_started(layer(28), Duration::from_secs(9), &CommandSettings::default());
        assert_eq!((full.class, full.reason.as_str()), (ErrorClass::Transient, reasons::WORKSPACE_FULL));
    }

    /// B-31: what other processes have used up says nothing about this machine: the command may start later.
    #[test]
    fn a_limit_that_others_have_reached_fails_no_command_for_good() {
        assert_attack_needs(Defect::SharedLimitIsFinal, "SandboxViolation", || {
            // EAGAIN, ENOMEM, EMFILE, ENFILE, ETOOMANYREFS and a connection to a launcher that was killed.
            for error in [11, 12, 24, 23, 109, 32] {
                let refused = LaunchError::Layer {
                    layer: Layer::Launcher,
                    doing: "sending the request to the launcher".into(),
                    source: io::Error::from_raw_os_error(error),
                };
                let short = not_started(refused, Duration::from_secs(9), &CommandSettings::default());
                assert_eq!(short.reason, "SANDBOX_UNAVAILABLE");
                if short.class != ErrorClass::Transient {
                    return Err(format!("a command fails for good because of error {error}: {short:?}"));
                }
                assert!(!short.message.contains("to fix it") || error == 32, "{short:?}");
            }
            Ok(())
        });
    }
}
