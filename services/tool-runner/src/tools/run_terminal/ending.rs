//! What the end of a command means for its call. Pure.

use std::{io, time::Duration};

use belay_proto::v1::ErrorClass;
use belay_reasons as reasons;
use belay_sandbox::{DiskLimit, LaunchError, Outcome, Output, Status, Unit, WriteBound};
use serde_json::json;

use super::streams::text;
use crate::{
    CommandSettings, ToolFailure, ToolResult,
    calls::timed_out,
    room::is_full,
    tools::files::{invalid, not_found, stopped, wrong_type},
};

/// SIGXCPU and SIGXFSZ, whose limits the sandbox sets; the same numbers on all architectures it runs on.
const OUT_OF_CPU: i32 = 24;
const FILE_TOO_LARGE: i32 = 25;

/// What was asked of a command, and what it had.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    /// Whether a code other than 0 is a failure.
    pub(super) check: bool,
    /// Its time limit.
    pub(super) limit: Duration,
    /// Whether it had a loopback interface of its own.
    pub(super) loopback: bool,
}

/// The result of a command that ended, or why it counts as a failure. What the command wrote goes with every failure of a call.
pub(super) fn judge(program: &str, outcome: Outcome, output: &Output, asked: Asked) -> ToolResult {
    let Asked { check, limit, loopback } = asked;
    let killed = |why: &str| failed(ErrorClass::Crash, reasons::COMMAND_KILLED, format!("`{program}` {why}."));
    match outcome.status {
        Status::Exited(code) if code == 0 || !check => Ok(json!({
            "exit_code": code,
            "stdout": text(&output.stdout),
            "stderr": text(&output.stderr),
            "stdout_bytes": output.stdout.total,
            "stderr_bytes": output.stderr.total,
            "truncated": output.stdout.dropped() + output.stderr.dropped() > 0,
        })),
        // What shells and the like say of a program they were to run.
        Status::Exited(code @ (126 | 127)) => {
            let why = if code == 126 { "cannot be executed" } else { "was not found" };
            let message = format!("`{program}` ended with code {code}: a program it was to run {why}.");
            failed(ErrorClass::AgentUnavailable, reasons::PROGRAM_NOT_FOUND, message)
        }
        // 128 + SIGKILL, which is how a shell reports it of what it ran.
        Status::Exited(137) => killed("ended with code 137: something it ran was killed, perhaps for want of memory"),
        Status::Exited(code) => {
            let hint = if wanted_network(output) { no_network(loopback) } else { String::new() };
            failed(ErrorClass::Transient, reasons::COMMAND_FAILED, format!("`{program}` ended with code {code}{hint}."))
        }
        Status::Signalled(OUT_OF_CPU) => killed("used more processor time than it may"),
        Status::Signalled(FILE_TOO_LARGE) => killed(
            "wrote a larger file than the operator's settings allow (`commands.limits.file_size`, and the budget of the place)",
        ),
        Status::Signalled(signal) => killed(&format!("was ended by signal {signal}")),
        Status::TimedOut => Err(timed_out(limit)),
        Status::DiskLimit(limit) => Err(over_disk_limit(program, limit)),
        Status::Killed => Err(stopped()),
        Status::Lost => {
            killed("was killed together with its sandbox from outside, perhaps by the kernel for want of memory")
        }
    }
}

/// Which bound a command met on the disk, and which setting raises it.
fn over_disk_limit(program: &str, DiskLimit { bound, unit, limit, found }: DiskLimit) -> ToolFailure {
    let (place, section) = match bound {
        WriteBound::View => ("changed its view of the workspace", "view"),
        WriteBound::Tmp => ("filled /tmp", "scratch"),
        WriteBound::Home => ("filled its home", "scratch"),
        WriteBound::Reserve => {
            let (amount, key) = match unit {
                Unit::Bytes => (format!("{} free, and commands leave {}", size(found), size(limit)), "size"),
                Unit::Inodes => (format!("{found} inodes free, and commands leave {limit}"), "files"),
            };
            let message = format!(
                "`{program}` was ended to keep the disk from filling up: it had {amount} (`commands.reserve.{key}`). Of the commands that \
                 wrote to it, this one held most."
            );
            // Where another program has filled it, a retry waits until there is room.
            return ToolFailure::new(ErrorClass::Transient, reasons::DISK_LIMIT, message);
        }
    };
    let (amount, key) = match (unit, bound) {
        (Unit::Bytes, WriteBound::Tmp) => (format!("{}, and may hold {}", size(found), size(limit)), "tmp"),
        (Unit::Bytes, WriteBound::Home) => (format!("{}, and may hold {}", size(found), size(limit)), "home"),
        (Unit::Bytes, _) => (format!("{}, and may hold {}", size(found), size(limit)), "size"),
        (Unit::Inodes, _) => (format!("{found} files and folders, and may hold {limit}"), "files"),
    };
    let message = format!(
        "`{program}` was ended because it {place} beyond what it may: it held {amount}. An operator raises that with \
         `commands.{section}.{key}`."
    );
    ToolFailure::new(ErrorClass::Transient, reasons::DISK_LIMIT, message)
}

/// Bytes for a person, in the largest unit of which there is one.
fn size(bytes: u64) -> String {
    let unit = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)].into_iter().find(|(_, unit)| bytes >= *unit);
    match unit {
        // Rounded up: what is over is more than what is allowed, and should read so.
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

/// Said of a command that seems to have failed for want of a network: what this one had of it.
fn no_network(loopback: bool) -> String {
    let had = match loopback {
        true => "had no network beyond a loopback interface of its own",
        false => "had no network, and no loopback interface either",
    };
    format!(
        ". It seems to need the network, and it {had}: put what it downloads into the workspace, or into a cache that the operator's \
         settings show"
    )
}

/// What resolvers, package managers and git print when they cannot reach the network or are told that they are offline.
const NETWORK_ERRORS: [&str; 17] = [
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
];

/// Whether a command's output reads as if it failed for want of a network.
fn wanted_network(output: &Output) -> bool {
    [&output.stderr, &output.stdout].into_iter().any(|stream| {
        let said = text(stream);
        NETWORK_ERRORS.iter().any(|error| said.contains(error))
    })
}

fn failed(class: ErrorClass, reason: &str, message: String) -> ToolResult {
    Err(ToolFailure::new(class, reason, message))
}

/// A command whose end nobody could see.
pub(super) fn lost(program: &str, why: &str) -> ToolFailure {
    ToolFailure::new(ErrorClass::Crash, reasons::COMMAND_KILLED, format!("`{program}` was lost while it ran: {why}."))
}

/// No command can run here.
pub(super) fn unavailable(why: &str) -> ToolFailure {
    ToolFailure::new(ErrorClass::SandboxViolation, reasons::SANDBOX_UNAVAILABLE, format!("No command can run: {why}."))
}

/// Why a plan must not set a variable, and what an operator can do.
pub(super) fn not_the_plans(name: &str) -> String {
    belay_sandbox::not_the_calls(name)
}

/// A cache of the workspace cannot be made.
pub(super) fn no_cache(error: &io::Error) -> ToolFailure {
    unavailable(&format!("a cache of its workspace cannot be made: {error}"))
}

/// Why a command was not started: nothing of it ran.
pub(super) fn not_started(error: LaunchError, limit: Duration, settings: &CommandSettings) -> ToolFailure {
    match &error {
        LaunchError::Spec { field, .. } if field == "wall" => timed_out(limit),
        // The mount is the runner's to say.
        LaunchError::Spec { field, .. } if field.starts_with("workspace") => {
            ToolFailure::new(ErrorClass::Internal, reasons::INTERNAL, format!("{error}: a fault of Belay."))
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
        LaunchError::NoRoom { place, limit } => {
            let (found, wanted, key) = match limit.unit {
                Unit::Bytes => (size(limit.found), size(limit.limit), "size"),
                Unit::Inodes => (format!("{} inodes", limit.found), limit.limit.to_string(), "files"),
            };
            let message = format!(
                "No command begins while the disk of {} has {found} free: commands leave {wanted} (`commands.reserve.{key}`).",
                place.display()
            );
            ToolFailure::new(ErrorClass::Transient, reasons::WORKSPACE_FULL, message)
        }
        LaunchError::Layer { source, .. } => {
            // A machine that is short of something now may have it again soon.
            let short = matches!(
                source.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory | io::ErrorKind::StorageFull
            );
            let failure = unavailable(&error.to_string());
            if is_full(source) {
                // The layer is there; what it is to be mounted on has no room.
                return ToolFailure { class: ErrorClass::Transient, reason: reasons::WORKSPACE_FULL.into(), ..failure };
            }
            if short { ToolFailure { class: ErrorClass::Transient, ..failure } } else { failure }
        }
        LaunchError::LauncherLost { program } => lost(program, &error.to_string()),
        LaunchError::NotReady => unavailable(&error.to_string()),
    }
}

/// The argument that a field of the sandbox's spec stands for, as a JSON pointer without its first slash.
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
    use belay_sandbox::{Layer, Usage};

    use super::*;

    fn judged(status: Status, stderr: &str, check: bool) -> ToolResult {
        let mut output = Output::default();
        output.stderr.head = stderr.into();
        output.stderr.total = stderr.len() as u64;
        let asked = Asked { check, limit: Duration::from_secs(9), loopback: true };
        judge("make", Outcome { status, usage: Usage::default() }, &output, asked)
    }

    fn failure(status: Status) -> (ErrorClass, String) {
        let failure = judged(status, "", true).unwrap_err();
        (failure.class, failure.reason)
    }

    /// S1-05, S1-08, S1-09, S2-FR-047: how an end is classed.
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

    #[test]
    fn a_failure_for_want_of_a_network_says_so() {
        let outputs = [
            "curl: (6) Could not resolve host: example.org",
            "npm error code ENOTCACHED",
            "go: golang.org/x/text@v0.3.0: module lookup disabled by GOPROXY=off",
            "As a reminder, you're using offline mode (--offline) which can sometimes cause surprising resolution failures",
            "NewConnectionError('Failed to establish a new connection: [Errno -2] Name or service not known')",
        ];
        for output in outputs {
            let message = judged(Status::Exited(1), output, true).unwrap_err().message;
            assert!(message.contains("need the network, and it had no network beyond a loopback"), "{message}");
        }
        let other = judged(Status::Exited(1), "error: expected `;`", true).unwrap_err().message;
        assert!(!other.contains("network"), "{other}");
    }

    #[test]
    fn a_bound_on_the_disk_is_named_with_its_setting() {
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
            let amount = if unit == Unit::Bytes { "8.1 MiB, and may hold 8 MiB" } else { "8388609 files" };
            assert!(failure.message.contains(amount), "{failure:?}");
        }
        let failure = failed(WriteBound::Reserve, Unit::Bytes, 1 << 30, 1000 << 20);
        assert_eq!((failure.class, failure.reason.as_str()), (ErrorClass::Transient, reasons::DISK_LIMIT));
        assert!(failure.message.contains("1000 MiB free, and commands leave 1 GiB"), "{failure:?}");
        assert!(failure.message.contains("commands.reserve.size"), "{failure:?}");
    }

    #[test]
    fn a_command_that_finds_no_room_waits_for_it() {
        let limit = DiskLimit { bound: WriteBound::Reserve, unit: Unit::Inodes, limit: 10_000, found: 7 };
        let refused = LaunchError::NoRoom { place: "/w/.belay/views/1".into(), limit };
        let refused = not_started(refused, Duration::from_secs(9), &CommandSettings::default());
        assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::Transient, reasons::WORKSPACE_FULL));
        assert!(refused.message.contains("7 inodes free") && refused.message.contains("commands.reserve.files"));
    }

    #[test]
    fn a_code_is_a_result_where_it_is_not_checked() {
        for code in [1, 127, 137] {
            assert_eq!(judged(Status::Exited(code), "oh", false).unwrap()["exit_code"], code);
        }
        assert!(judged(Status::Signalled(11), "", false).is_err(), "what crashed has no result");
    }

    #[test]
    fn a_refusal_names_the_argument() {
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
        assert_eq!(refused(spec("wall")).reason, "TIMEOUT");
        assert_eq!(refused(spec("workspace.staging")).reason, "INTERNAL");
    }

    // B-10: the missing layer and what to do about it.
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
        let short = not_started(layer(11), Duration::from_secs(9), &CommandSettings::default());
        assert_eq!((short.class, short.reason.as_str()), (ErrorClass::Transient, "SANDBOX_UNAVAILABLE"));
    }
}
